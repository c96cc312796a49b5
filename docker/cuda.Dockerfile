# An image that trains on NVIDIA GPUs: the bundle over CUDA's libraries, cuBLAS and NCCL. The node needs a driver for
# this CUDA and the NVIDIA container toolkit.
#   docker build -f docker/cuda.Dockerfile -t megalith .
#   docker run --rm --gpus all --ipc host --network host --ulimit memlock=-1 --device /dev/infiniband \
#     -v "$PWD:/work" -w /work megalith run -n 8 train ...
# Without a network of InfiniBand or RoCE leave --device out; with it, NCCL needs the device, memory that it may pin, and
# the host's network.
# For a node without internet access build it elsewhere; for another CUDA: --build-arg CUDA=12.8.1
# For Amazon's EFA: --build-arg EFA=ADDRESS, of the aws-efa-installer-VERSION.tar.gz that the EFA guide names; it brings
# NCCL's plugin for it. Every /dev/infiniband/uverbs* of the node belongs into the container there.
ARG CUDA=13.0.1
FROM nvidia/cuda:${CUDA}-devel-ubuntu24.04 AS build
WORKDIR /source
COPY docker/install-packages.sh docker/
RUN docker/install-packages.sh
COPY . .
RUN docker/bundle.sh /opt/megalith cuda

FROM nvidia/cuda:${CUDA}-runtime-ubuntu24.04
ARG EFA=
# NCCL needs these for InfiniBand and RoCE; without, it uses TCP and says so only under NCCL_DEBUG=INFO. EFA's installer
# brings its own.
RUN set -e; export DEBIAN_FRONTEND=noninteractive; apt-get update -qq; \
    if [ -z "$EFA" ]; then \
      apt-get install -y -qq --no-install-recommends libibverbs1 ibverbs-providers; \
    else \
      apt-get install -y -qq --no-install-recommends ca-certificates curl; \
      mkdir /tmp/efa; curl -fsSL "$EFA" | tar -xz -C /tmp/efa --strip-components 1; \
      cd /tmp/efa; ./efa_installer.sh -y --skip-kmod --skip-limit-conf --no-verify; \
      find /opt/amazon -name 'libnccl-net*.so' -printf '%h\n' | sort -u > /etc/ld.so.conf.d/nccl-net.conf; \
      [ -s /etc/ld.so.conf.d/nccl-net.conf ] || { echo "$EFA has no plugin for NCCL; take a newer one" >&2; exit 1; }; \
      ldconfig; \
    fi; \
    rm -rf /tmp/efa /var/lib/apt/lists/*
COPY --from=build /opt/megalith /opt/megalith
ENV PATH=/opt/megalith:$PATH
ENTRYPOINT ["megalith"]
