# The service alone: no shell, no libc, no root.
#
#   make docker
#   docker run -p 8080:8080 -e SPILLWAY_STRATEGY=lifo -v spillway:/data spillway

# Compiled by the builder's own platform for that of the image: emulated, the compiler
# takes an hour. A builder that knows no platforms builds for its own.
FROM --platform=${BUILDPLATFORM:-linux} golang:1.26 AS build
WORKDIR /src
# By themselves, so that a change of the code does not download them again.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
ARG COMMIT=unknown
ARG TARGETOS
ARG TARGETARCH
ENV CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH
RUN built=github.com/spillway-go/spillway/internal/version \
    && go build -trimpath -ldflags "-s -w -X $built.version=$VERSION -X $built.commit=$COMMIT" -o /out/ ./cmd/spillway ./cmd/loadtest \
    && mkdir /out/root && mkdir -m 700 /out/root/data

# The load lab: docker build --target loadtest
FROM scratch AS loadtest
COPY --from=build /out/loadtest /
USER 65532:65532
ENTRYPOINT ["/loadtest"]

FROM scratch AS spillway
ARG VERSION=devel
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="Spillway" \
      org.opencontainers.image.description="A key-value store and a proxy over HTTP whose request queue can be chosen, switched, watched and measured" \
      org.opencontainers.image.source="https://github.com/spillway-go/spillway" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT"
COPY --from=build /out/spillway /
# A new volume takes owner and mode from the folder that it covers.
COPY --from=build --chown=65532:65532 /out/root /
ENV SPILLWAY_LISTEN=:8080 \
    SPILLWAY_ADMIN_LISTEN=:6060 \
    SPILLWAY_DATA_DIR=/data
USER 65532:65532
VOLUME /data
EXPOSE 8080 6060
HEALTHCHECK --interval=5s --timeout=6s --start-period=120s CMD ["/spillway", "healthcheck"]
ENTRYPOINT ["/spillway"]
