# Airflow and Spark in one image: driver and executors must have the same Python, packages and code.
# Versions stand in requirements.txt, constraints.txt, docker/requirements.txt and services/pom.xml.
FROM debian:bookworm-slim AS jars
RUN apt-get update \
    && apt-get install --yes --no-install-recommends maven openjdk-17-jdk-headless \
    && rm -rf /var/lib/apt/lists/*
COPY services/pom.xml /build/pom.xml
RUN mvn --batch-mode --quiet --file /build/pom.xml --activate-profiles spark \
        dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=/jars

FROM python:3.13-slim-bookworm
# Not a cut-down Java: Spark's launcher asks for the module jdk.incubator.vector, which Debian's has.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY requirements.txt constraints.txt /build/
COPY docker/requirements.txt /build/docker/requirements.txt
RUN pip install --no-cache-dir --disable-pip-version-check \
        -r /build/requirements.txt -r /build/docker/requirements.txt -c /build/constraints.txt

COPY --from=jars /jars /opt/spark/connectors
COPY docker/airflow/spark-defaults.conf /opt/spark/conf/spark-defaults.conf
COPY services/templates/log4j2.properties /opt/spark/conf/log4j2.properties
# The jars' names hold versions, so the list is made here. A new volume takes over the owner of the folder that it
# covers, so the folders are made here too.
RUN echo "spark.jars $(find /opt/spark/connectors -name '*.jar' | sort | paste --serial --delimiters=,)" \
        >>/opt/spark/conf/spark-defaults.conf \
    && sed -i 's/\${level}/warn/' /opt/spark/conf/log4j2.properties \
    && useradd --uid 10001 --create-home tidemark \
    && install --directory --owner tidemark --group tidemark /lake /opt/airflow /opt/airflow/logs /opt/spark/work

COPY tidemark /opt/tidemark/tidemark
COPY spark_jobs /opt/tidemark/spark_jobs
COPY dags /opt/tidemark/dags
COPY plugins /opt/tidemark/plugins
COPY demo /opt/tidemark/demo
COPY docker/airflow/api.py docker/airflow/healthy.py /opt/tidemark/docker/

# The rooms are importable without being installed, so that Airflow does not find the plugin twice.
ENV PYTHONPATH=/opt/tidemark:/opt/tidemark/spark_jobs:/opt/tidemark/dags:/opt/tidemark/plugins \
    AIRFLOW_HOME=/opt/airflow \
    SPARK_CONF_DIR=/opt/spark/conf \
    PYSPARK_PYTHON=/usr/local/bin/python3 \
    PYSPARK_DRIVER_PYTHON=/usr/local/bin/python3
USER tidemark
WORKDIR /opt/airflow
