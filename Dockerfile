# For people who build with Docker. The released image is that of `make image`, which needs no Docker. Both have the same files, made by the same program, and
# the same configuration: a test compares them.
#
#   docker build -t tundish --build-arg VERSION="$(git describe --tags --always --dirty)" --build-arg REVISION="$(git rev-parse HEAD)" \
#     --build-arg CREATED="$(TZ=UTC0 git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd)" .
#
# Without the arguments it builds too, and the programs say that their version is "unknown". The test builds it by buildah. Docker: not run by us.

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETARCH
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
WORKDIR /src
COPY . .
RUN cd test/deploy && go run ./image -files /out -arch "${TARGETARCH:-$(go env GOARCH)}" -version "$VERSION" -revision "$REVISION" -created "$CREATED"

FROM scratch
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
COPY --from=build /out/ /
LABEL org.opencontainers.image.title="tundish" \
      org.opencontainers.image.description="Queue-shaping dispatcher: bursts in, an even stream at the configured rate out" \
      org.opencontainers.image.source="https://github.com/tundish-io/tundish" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/usr/local/bin
# In no file of the image, and the owner of nothing.
USER 65532:65532
WORKDIR /
EXPOSE 8080 8081
STOPSIGNAL SIGTERM
CMD ["dispatcher", "--help"]
