# make image IMAGE=fairlead:v0.1.0, or docker build -t fairlead:v0.1.0 .
# The version that the program tells (fairlead --version) is that of the commit, which Go takes from .git. The same commit gives the same program.
# On the machine that builds, for the platform that is wanted: docker buildx build --platform linux/amd64,linux/arm64 …
FROM --platform=$BUILDPLATFORM golang:1.26.8-trixie AS build
WORKDIR /src
ENV CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-mod=readonly
COPY go.mod go.sum ./
RUN go mod download && go mod verify
COPY . .
# Without defaults, which would win over what the builder says: every platform would get the same program.
ARG TARGETOS TARGETARCH
RUN GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags="-s -w -buildid=" -o /out/fairlead ./cmd/fairlead

# Nothing but the program and the authorities that receivers are trusted by.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/fairlead /fairlead
USER 65532:65532
ENTRYPOINT ["/fairlead"]
CMD ["controller", "--help"]
