# An image that trains on NVIDIA GPUs: the bundle over CUDA's libraries, cuBLAS and NCCL. The node needs a driver for
# this CUDA and the NVIDIA container toolkit.
#   docker build -f docker/cuda.Dockerfile -t megalith .
#   docker run --rm --gpus all --ipc host -v "$PWD:/work" -w /work --entrypoint mpirun megalith --allow-run-as-root -n 8 megalith train ...
# For a node without internet access build it elsewhere; for another CUDA: --build-arg CUDA=12.8.1
ARG CUDA=13.0.1
FROM nvidia/cuda:${CUDA}-devel-ubuntu24.04 AS build
WORKDIR /source
COPY docker/install-packages.sh docker/
RUN docker/install-packages.sh
COPY . .
RUN docker/bundle.sh /opt/megalith cuda

FROM nvidia/cuda:${CUDA}-runtime-ubuntu24.04
COPY --from=build /opt/megalith /opt/megalith
ENV PATH=/opt/megalith:$PATH
ENTRYPOINT ["megalith"]
