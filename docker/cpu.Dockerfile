# An image that trains on CPUs, about 150 MB: the bundle and nothing else.
#   docker build -f docker/cpu.Dockerfile -t megalith:cpu .
#   docker run --rm -v "$PWD:/work" -w /work megalith:cpu train configs/quickstart.toml ...
#   docker run --rm -v "$PWD:/work" -w /work megalith:cpu run -n 2 train configs/quickstart.toml ...
FROM debian:12 AS build
WORKDIR /source
COPY docker/install-packages.sh docker/
RUN docker/install-packages.sh
COPY . .
RUN docker/bundle.sh /opt/megalith cpu

FROM debian:12-slim
COPY --from=build /opt/megalith /opt/megalith
ENV PATH=/opt/megalith:$PATH
ENTRYPOINT ["megalith"]
