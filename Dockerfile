# One image for all processes; docker-compose.yml says which command each runs.
#
# The digest is that of the tag's index for all machines, in September 2026. To take a newer one, change tag and digest
# together, in both places: docker buildx imagetools inspect python:3.11-slim --format '{{.Manifest.Digest}}'
FROM python:3.11.16-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7 AS build
WORKDIR /src
COPY pyproject.toml constraints.txt constraints-dev.txt README.md LICENSE NOTICE ./
COPY loom_worker loom_worker
COPY web web
COPY patterns patterns
# Every package comes as a wheel with its hash, so no compiler is needed, here or in the image.
RUN python -m venv /opt/loom \
 && /opt/loom/bin/pip install --no-cache-dir --only-binary :all: -r constraints.txt
# Extras of pyproject.toml, by commas: drivers of databases and the like, with the versions that the tests have. That of
# PostgreSQL is always there: Loom's own database may be one.
ARG EXTRAS=
RUN sed -n 's/^\([^ ]*==[^ ;]*\).*/\1/p' constraints-dev.txt > versions.txt \
 && /opt/loom/bin/pip install --no-cache-dir --only-binary :all: --no-build-isolation -c versions.txt ".[postgresql${EXTRAS:+,$EXTRAS}]" \
 && /opt/loom/bin/pip check

FROM python:3.11.16-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7
RUN useradd --uid 10001 --create-home loom && install -d -o loom -g loom -m 0700 /data
COPY --from=build /opt/loom /opt/loom
ENV PATH=/opt/loom/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    LOOM_HOME=/data
USER loom
WORKDIR /data
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
# No HEALTHCHECK: what is healthy differs between web, workers and beat; docker-compose.yml has one for each.
ENTRYPOINT ["loom"]
CMD ["--help"]
