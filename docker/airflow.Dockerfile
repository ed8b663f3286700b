# Airflow and Spark in one image: driver and executors must have the same Python, packages and code.
# Versions and hashes stand in docker/requirements.lock, services/pom.xml and services/jars.sha256.
# Whoever pins the base images by digest gives them as arguments; docs/compose.md says how.
ARG DEBIAN=debian:bookworm-slim
ARG PYTHON=python:3.13-slim-bookworm

FROM ${DEBIAN} AS jars
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked --mount=type=cache,target=/var/lib/apt/lists,sharing=locked \
    apt-get update \
    && apt-get install --yes --no-install-recommends maven openjdk-17-jdk-headless
COPY services/pom.xml services/jars.sha256 /build/
COPY docker/check_jars.sh /build/
RUN --mount=type=cache,target=/root/.m2,sharing=locked \
    mvn --batch-mode --quiet --file /build/pom.xml --activate-profiles spark \
        dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=/jars \
    && bash /build/check_jars.sh /jars

FROM ${PYTHON} AS packages
COPY docker/requirements.lock docker/wheel.lock /build/
# What is needed to make the wheel only has an environment of its own. What no program here reads is left out: the
# libraries' own tests, Spark's shell for Connect, its store for streaming queries, its way to Kubernetes and what MLlib
# computes with, Arrow Flight, Hive's client, and what builds packages. Whoever runs the programs may not write here, so they
# are compiled now.
RUN --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    python3 -m venv /build/wheel \
    && python3 -m venv --without-pip /opt/venv \
    && export PIP_DISABLE_PIP_VERSION_CHECK=1 pip=/build/wheel/bin/pip \
    && $pip install --require-hashes --requirement /build/wheel.lock \
    # PySpark is published as source only.
    && sed -n '/^pyspark/,/[^\\]$/p' /build/requirements.lock >/build/sources.lock \
    && $pip wheel --no-deps --no-build-isolation --require-hashes --requirement /build/sources.lock --wheel-dir /build/spark \
    && $pip --python /opt/venv/bin/python install --no-deps --no-compile --no-index /build/spark/*.whl \
    && $pip --python /opt/venv/bin/python install --no-compile --require-hashes --requirement /build/requirements.lock \
    && rm -r /build/spark \
    && cd /opt/venv/lib/python3.*/site-packages \
    && rm -rf pyspark/jars/connect-repl pyspark/jars/rocksdbjni-* pyspark/jars/*kubernetes-* pyspark/examples \
    && rm -rf pyspark/jars/breeze* pyspark/jars/spire* pyspark/jars/cats-* pyspark/jars/algebra* \
    && rm -rf pyarrow/include pyarrow/*flight* hive_metastore setuptools _distutils_hack distutils-precedence.pth \
    && find . -type d -name tests -prune -exec rm -rf {} + \
    && { /opt/venv/bin/python -m compileall -q -j 0 . || true; } \
    && /opt/venv/bin/python -c 'import deltalake, pyarrow.compute, pyarrow.dataset, pyarrow.fs, pyarrow.parquet, pyspark.sql'
COPY pyproject.toml README.md LICENSE /build/source/
COPY tidemark /build/source/tidemark
COPY spark_jobs /build/source/spark_jobs
RUN cd /build/source \
    && /build/wheel/bin/pip wheel --disable-pip-version-check --no-deps --no-index --no-build-isolation --wheel-dir /build/made . \
    && /build/wheel/bin/pip --python /opt/venv/bin/python install --disable-pip-version-check --no-deps --no-index /build/made/*.whl

FROM ${PYTHON}
# Not a cut-down Java: Spark's launcher asks for the module jdk.incubator.vector, which Debian's has.
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked --mount=type=cache,target=/var/lib/apt/lists,sharing=locked \
    apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless
COPY --from=jars /jars /opt/spark/connectors
COPY docker/airflow/spark-defaults.conf /opt/spark/conf/spark-defaults.conf
COPY services/templates/log4j2.properties /opt/spark/conf/log4j2.properties
# The jars' names hold versions, so the list is made here. A new volume takes over the owner of the folder that it
# covers, so the folders are made here too.
RUN echo "spark.jars $(find /opt/spark/connectors -name '*.jar' | sort | paste --serial --delimiters=,)" \
        >>/opt/spark/conf/spark-defaults.conf \
    && sed -i 's/\${level}/warn/' /opt/spark/conf/log4j2.properties \
    && useradd --uid 10001 --create-home tidemark \
    && install --directory --owner tidemark --group tidemark /lake /selections /streams /opt/airflow /opt/airflow/logs /opt/spark/work

COPY --from=packages /opt/venv /opt/venv
COPY dags/tidemark_streams.py /opt/tidemark/dags/tidemark_streams.py
COPY demo /opt/tidemark/demo
COPY docker/airflow/api.py docker/airflow/first_lines.py docker/airflow/healthy.py /opt/tidemark/docker/
COPY --chmod=755 docker/airflow/with_secrets.sh /opt/tidemark/bin/with-secrets
RUN ln -s with-secrets /opt/tidemark/bin/tidemark && ln -s with-secrets /opt/tidemark/bin/airflow

# The interpreter by the name that the programs have: by another, their commands would start a second warm engine.
ENV PATH=/opt/tidemark/bin:/opt/venv/bin:/usr/local/bin:/usr/bin:/bin \
    AIRFLOW_HOME=/opt/airflow \
    SPARK_CONF_DIR=/opt/spark/conf \
    PYSPARK_PYTHON=/opt/venv/bin/python \
    PYSPARK_DRIVER_PYTHON=/opt/venv/bin/python
USER tidemark
WORKDIR /opt/airflow
