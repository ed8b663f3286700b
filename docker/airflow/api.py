"""Become Airflow's API server, after putting the administrator's password where the simple auth manager reads it."""

import json
import os
from pathlib import Path

passwords = Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
passwords.touch(mode=0o600)
# Taken out of the environment: what the server starts need not know it.
passwords.write_text(json.dumps({"admin": os.environ.pop("TIDEMARK_ADMIN_PASSWORD")}))
os.execvp("airflow", ["airflow", "api-server"])  # noqa: S606 - no shell is what is wanted
