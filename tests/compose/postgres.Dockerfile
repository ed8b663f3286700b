# In place of postgres:17-bookworm, of the files that bases.sh has made.
FROM stand-in-postgres:files
COPY postgres-entrypoint.sh /usr/local/bin/docker-entrypoint.sh
RUN install --directory --owner postgres --group postgres --mode 3777 /var/run/postgresql
STOPSIGNAL SIGINT
