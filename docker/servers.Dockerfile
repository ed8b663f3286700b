# Kafka, ZooKeeper and HBase with Thrift: one image, started with different commands (docker/servers/server.sh).
# The versions of the servers are those of services/pom.xml; none stands here.
# Whoever pins the base image by digest gives it as an argument; docs/compose.md says how.
ARG DEBIAN=debian:bookworm-slim

FROM ${DEBIAN} AS jars
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked --mount=type=cache,target=/var/lib/apt/lists,sharing=locked \
    apt-get update \
    && apt-get install --yes --no-install-recommends maven openjdk-17-jdk-headless
COPY services/pom.xml services/jars.sha256 /build/
COPY docker/check_jars.sh /build/
# A class path each, because the servers' dependencies disagree with each other.
RUN --mount=type=cache,target=/root/.m2,sharing=locked \
    for profile in kafka zookeeper hbase; do \
        mvn --batch-mode --quiet --file /build/pom.xml --activate-profiles "$profile" \
            dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory=/jars/$profile" || exit 1; \
    done \
    && bash /build/check_jars.sh /jars/*

FROM ${DEBIAN}
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked --mount=type=cache,target=/var/lib/apt/lists,sharing=locked \
    apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless
COPY --from=jars /jars /opt/servers/jars
COPY docker/servers/kafka.properties docker/servers/zoo.cfg docker/servers/hbase-site.xml /opt/servers/conf/
# Kafka's logging reads the first of these, HBase's the second.
COPY services/templates/log4j2.properties services/templates/log4j.properties /opt/servers/conf/
COPY --chmod=755 docker/servers/server.sh docker/servers/healthy.sh /opt/servers/
# A new volume takes over the owner of the folder that it covers: /data has to belong to the user already here.
RUN sed -i 's/\${level}/info/' /opt/servers/conf/log4j2.properties \
    && useradd --uid 10001 --create-home tidemark \
    && install --directory --owner tidemark --group tidemark /data
USER tidemark
WORKDIR /home/tidemark
ENTRYPOINT ["/opt/servers/server.sh"]
