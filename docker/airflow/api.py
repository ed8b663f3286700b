"""Become Airflow's API server, after putting the administrator's password where the simple auth manager reads it."""

import json
import os
from pathlib import Path

passwords = Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
passwords.touch(mode=0o600)
passwords.write_text(json.dumps({"admin": Path("/run/secrets/TIDEMARK_ADMIN_PASSWORD").read_text()}))
os.execvp("airflow", ["airflow", "api-server"])  # noqa: S606 - no shell is what is wanted
