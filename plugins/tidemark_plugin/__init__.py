"""What people see of Tidemark in Airflow."""
