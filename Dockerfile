# The serving image: no torch, no compiler, no root.
#
#   docker build -t longmatch .             (for a GPU: --build-arg REQUIREMENTS=gpu)
#   docker run -p 127.0.0.1:8000:8000 -v longmatch-data:/data longmatch

FROM python:3.12.13-slim-trixie@sha256:229a2c5bfa27522db7815ea81f9bed70af17ccb9de9fc7ad142b1877b5830d36 AS build
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore
RUN python -m venv /opt/longmatch
ENV PATH=/opt/longmatch/bin:$PATH
WORKDIR /src

# Dependencies come first: a change of the code does not invalidate this layer. Each is pinned to its
# hashes (`make constraints`).
ARG REQUIREMENTS=cpu
COPY deploy/requirements/${REQUIREMENTS}.txt requirements.txt
RUN pip install --require-hashes --requirement requirements.txt

COPY pyproject.toml README.md LICENSE NOTICE ./
COPY encoder encoder
COPY index index
COPY evaluation evaluation
COPY training training
COPY service service
COPY clients/python/longmatch clients/python/longmatch
# What builds the wheel is pinned to its hashes, too, and stays out of the image.
COPY deploy/requirements/build.txt build.txt
RUN python -m venv /build \
    && /build/bin/pip install --require-hashes --requirement build.txt \
    && /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheel . \
    && pip install --no-deps /wheel/*.whl \
    # Packages for a GPU have the modules of those for a CPU, but not their names.
    && { pip check || [ "$REQUIREMENTS" = gpu ]; }
# The graphs in fp16, which are for a GPU, read the weights; the wheel has none.
RUN [ "$REQUIREMENTS" != gpu ] \
    || cp encoder/checkpoints/smith-minilm-l6/weights.safetensors \
          /opt/longmatch/lib/python3*/site-packages/encoder/checkpoints/smith-minilm-l6/


FROM python:3.12.13-slim-trixie@sha256:229a2c5bfa27522db7815ea81f9bed70af17ccb9de9fc7ad142b1877b5830d36
LABEL org.opencontainers.image.title="longmatch" \
      org.opencontainers.image.description="Finds the documents that match a long document"

RUN groupadd --gid 10001 longmatch \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent \
               --shell /usr/sbin/nologin longmatch \
    && install -d -o 10001 -g 10001 -m 0750 /data
COPY --from=build /opt/longmatch /opt/longmatch

# /opt/longmatch belongs to root and is never written: pip has compiled the byte code.
# ONNX Runtime sends usage data to its vendor unless this is set.
ENV PATH=/opt/longmatch/bin:$PATH \
    ORT_DISABLE_TELEMETRY=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
CMD ["longmatch", "serve", "--data", "/data", "--host", "0.0.0.0", "--port", "8000"]
