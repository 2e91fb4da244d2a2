# Two small images: `console` (console, ledger, command line; no torch) and `trainer` (the same with torch on CPU, for the
# demo). A training image of your own needs none of this: `pip install lastgood` in it.
FROM python:3.11-slim-bookworm AS wheel
WORKDIR /src
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY exporter exporter
COPY alerts alerts
COPY dashboards dashboards
COPY app app
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim-bookworm AS console
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin lastgood \
    && mkdir /runs /state && chown 10001:10001 /runs /state
# The name of the wheel has its version in it, hence the shell.
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    --mount=type=bind,source=constraints.txt,target=/constraints.txt \
    pip install --no-cache-dir -c /constraints.txt "$(ls /wheels/lastgood-*.whl)[console,push,sign-in]"
USER 10001:10001
EXPOSE 8490
ENTRYPOINT ["lastgood"]
CMD ["console", "/runs", "--host", "0.0.0.0", "--state", "/state"]

FROM console AS trainer
USER root
RUN --mount=type=bind,source=constraints.txt,target=/constraints.txt \
    pip install --no-cache-dir -c /constraints.txt torch --index-url https://download.pytorch.org/whl/cpu \
        --extra-index-url https://pypi.org/simple
USER 10001:10001
EXPOSE 9470-9485
CMD ["demo", "--no-console"]
