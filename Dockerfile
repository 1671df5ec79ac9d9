# One image for every verb. Nothing is written outside /tmp, so it runs with a read-only root file system.
FROM python:3.11-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
RUN python -m venv /opt/derender
COPY requirements/worker.txt requirements/
RUN /opt/derender/bin/pip install --require-hashes -r requirements/worker.txt
COPY . .
RUN /opt/derender/bin/pip install --no-build-isolation --no-deps .

FROM python:3.11-slim
COPY --from=build /opt/derender /opt/derender
# The demo's recording and tokenizer, under the same relative path as in a checkout.
COPY derender/data /app/derender/data
WORKDIR /app
ENV PATH=/opt/derender/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HF_HOME=/tmp/huggingface
USER 10001:10001
CMD ["derender", "--help"]
