// SPDX-License-Identifier: Apache-2.0
// What this build finds on this machine: versions of the loaded libraries, and the GPUs, each of
// which moves a few bytes. One "name: value" per line.
//
//     gpu_probe            exit code: 0; 1 a GPU does not work; 6 no GPU
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include <array>
#include <cstdio>
#include <cstring>

namespace {

/// Copies bytes to the GPU and back.
cudaError_t try_gpu(int ordinal) {
    const std::array<char, 8> sent{"1234567"};
    std::array<char, 8> found{};
    void* memory = nullptr;
    cudaError_t status = cudaSetDevice(ordinal);
    if (status == cudaSuccess) status = cudaMalloc(&memory, sent.size());
    if (status == cudaSuccess) {
        status = cudaMemcpy(memory, sent.data(), sent.size(), cudaMemcpyHostToDevice);
    }
    if (status == cudaSuccess) {
        status = cudaMemcpy(found.data(), memory, found.size(), cudaMemcpyDeviceToHost);
    }
    (void)cudaFree(memory);
    if (status == cudaSuccess && found != sent) status = cudaErrorUnknown;
    return status;
}

void print_libraries() {
    int driver = 0, runtime = 0, nccl = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    (void)ncclGetVersion(&nccl);
    const size_t blas = cublasLtGetVersion();
    std::printf("driver: CUDA %d.%d\n", driver / 1000, driver % 1000 / 10);
    std::printf("runtime: CUDA %d.%d\n", runtime / 1000, runtime % 1000 / 10);
    std::printf("cublasLt: %zu.%zu.%zu\n", blas / 10000, blas / 100 % 100, blas % 100);
    std::printf("nccl: %d.%d.%d\n", nccl / 10000, nccl / 100 % 100, nccl % 100);
}

}  // namespace

int main() {
    print_libraries();
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    std::printf("gpus: %d\n", count);
    if (count == 0) {
        std::printf("reason: %s\n", cudaGetErrorString(status));
        return 6;
    }
    int broken = 0;
    for (int i = 0; i < count; ++i) {
        cudaDeviceProp gpu{};
        cudaError_t works = cudaGetDeviceProperties(&gpu, i);
        if (works == cudaSuccess) works = try_gpu(i);
        std::printf("gpu %d: %s, %d SMs, %zu MiB, compute capability %d.%d, %s\n", i, gpu.name,
                    gpu.multiProcessorCount, gpu.totalGlobalMem >> 20, gpu.major, gpu.minor,
                    works == cudaSuccess ? "works" : cudaGetErrorString(works));
        if (works != cudaSuccess) ++broken;
    }
    return broken == 0 ? 0 : 1;
}
