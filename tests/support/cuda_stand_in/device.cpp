// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <cstdio>

#include "function_name.hpp"
#include "hooks.hpp"
#include "multiprocessors.hpp"

using namespace cuda_stand_in;

namespace {

// What the devices claim to be: compute capability 9.0.
constexpr int major_capability = 9;
constexpr int minor_capability = 0;
constexpr int threads_per_multiprocessor = 2048;
constexpr int shared_bytes_per_block = 48 * 1024;
constexpr int shared_bytes_per_block_optin = 227 * 1024;
constexpr int shared_bytes_per_multiprocessor = 228 * 1024;
constexpr int l2_bytes = 50 * 1024 * 1024;

bool valid(int device) {
    return device >= 0 && device < device_count();
}

}  // namespace

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return "cudaSuccess";
        case cudaErrorInvalidValue:
            return "cudaErrorInvalidValue";
        case cudaErrorMemoryAllocation:
            return "cudaErrorMemoryAllocation";
        case cudaErrorInitializationError:
            return "cudaErrorInitializationError";
        case cudaErrorInvalidConfiguration:
            return "cudaErrorInvalidConfiguration";
        case cudaErrorInvalidPitchValue:
            return "cudaErrorInvalidPitchValue";
        case cudaErrorInvalidMemcpyDirection:
            return "cudaErrorInvalidMemcpyDirection";
        case cudaErrorInsufficientDriver:
            return "cudaErrorInsufficientDriver";
        case cudaErrorNoDevice:
            return "cudaErrorNoDevice";
        case cudaErrorInvalidDevice:
            return "cudaErrorInvalidDevice";
        case cudaErrorECCUncorrectable:
            return "cudaErrorECCUncorrectable";
        case cudaErrorInvalidResourceHandle:
            return "cudaErrorInvalidResourceHandle";
        case cudaErrorNotReady:
            return "cudaErrorNotReady";
        case cudaErrorIllegalAddress:
            return "cudaErrorIllegalAddress";
        case cudaErrorLaunchOutOfResources:
            return "cudaErrorLaunchOutOfResources";
        case cudaErrorPeerAccessAlreadyEnabled:
            return "cudaErrorPeerAccessAlreadyEnabled";
        case cudaErrorHostMemoryAlreadyRegistered:
            return "cudaErrorHostMemoryAlreadyRegistered";
        case cudaErrorHostMemoryNotRegistered:
            return "cudaErrorHostMemoryNotRegistered";
        case cudaErrorAssert:
            return "cudaErrorAssert";
        case cudaErrorMisalignedAddress:
            return "cudaErrorMisalignedAddress";
        case cudaErrorLaunchFailure:
            return "cudaErrorLaunchFailure";
        case cudaErrorNotSupported:
            return "cudaErrorNotSupported";
        default:
            return "cudaErrorUnknown";
    }
}

const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return "no error";
        case cudaErrorInvalidValue:
            return "invalid argument";
        case cudaErrorMemoryAllocation:
            return "out of memory";
        case cudaErrorInitializationError:
            return "initialization error";
        case cudaErrorInvalidConfiguration:
            return "invalid configuration argument";
        case cudaErrorInvalidPitchValue:
            return "invalid pitch argument";
        case cudaErrorInvalidMemcpyDirection:
            return "invalid copy direction for memcpy";
        case cudaErrorInsufficientDriver:
            return "CUDA driver version is insufficient for CUDA runtime version";
        case cudaErrorNoDevice:
            return "no CUDA-capable device is detected";
        case cudaErrorInvalidDevice:
            return "invalid device ordinal";
        case cudaErrorECCUncorrectable:
            return "uncorrectable ECC error encountered";
        case cudaErrorInvalidResourceHandle:
            return "invalid resource handle";
        case cudaErrorNotReady:
            return "device not ready";
        case cudaErrorIllegalAddress:
            return "an illegal memory access was encountered";
        case cudaErrorLaunchOutOfResources:
            return "too many resources requested for launch";
        case cudaErrorPeerAccessAlreadyEnabled:
            return "peer access is already enabled";
        case cudaErrorHostMemoryAlreadyRegistered:
            return "part or all of the requested memory range is already mapped";
        case cudaErrorHostMemoryNotRegistered:
            return "pointer does not correspond to a registered memory region";
        case cudaErrorAssert:
            return "device-side assert triggered";
        case cudaErrorMisalignedAddress:
            return "misaligned address";
        case cudaErrorLaunchFailure:
            return "unspecified launch failure";
        case cudaErrorNotSupported:
            return "operation not supported";
        default:
            return "unknown error";
    }
}

cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
    *runtimeVersion = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* driverVersion) {
    *driverVersion = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count_) {
    *count_ = 0;
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    *count_ = device_count();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (!valid(device)) {
        return report(cudaErrorInvalidDevice);
    }
    set_current_device(device);
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    *device = current_device();
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* prop, int device) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (!valid(device)) {
        return report(cudaErrorInvalidDevice);
    }
    *prop = {};
    std::snprintf(prop->name, sizeof prop->name, "CUDA stand-in on the host");
    prop->uuid.bytes[0] = static_cast<char>(device);
    prop->totalGlobalMem = memory_bytes();
    prop->sharedMemPerBlock = shared_bytes_per_block;
    prop->sharedMemPerBlockOptin = shared_bytes_per_block_optin;
    prop->sharedMemPerMultiprocessor = shared_bytes_per_multiprocessor;
    prop->regsPerBlock = prop->regsPerMultiprocessor = 65536;
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = 1024;
    prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
    prop->maxThreadsDim[2] = 64;
    prop->maxGridSize[0] = 2147483647;
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->major = major_capability;
    prop->minor = minor_capability;
    prop->multiProcessorCount = multiprocessors();
    prop->concurrentKernels = 1;
    prop->pciBusID = device + 1;
    prop->asyncEngineCount = 2;
    prop->unifiedAddressing = 1;
    prop->memoryBusWidth = 5120;
    prop->l2CacheSize = l2_bytes;
    prop->maxThreadsPerMultiProcessor = threads_per_multiprocessor;
    prop->streamPrioritiesSupported = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attr, int device) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (!valid(device)) {
        return report(cudaErrorInvalidDevice);
    }
    switch (attr) {
        case cudaDevAttrMaxThreadsPerBlock:
            *value = 1024;
            break;
        case cudaDevAttrMaxSharedMemoryPerBlock:
            *value = shared_bytes_per_block;
            break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            *value = shared_bytes_per_block_optin;
            break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
            *value = shared_bytes_per_multiprocessor;
            break;
        case cudaDevAttrWarpSize:
            *value = 32;
            break;
        case cudaDevAttrMultiProcessorCount:
            *value = multiprocessors();
            break;
        case cudaDevAttrPciBusId:
            *value = device + 1;
            break;
        case cudaDevAttrPciDeviceId:
        case cudaDevAttrPciDomainId:
            *value = 0;
            break;
        case cudaDevAttrL2CacheSize:
            *value = l2_bytes;
            break;
        case cudaDevAttrMaxThreadsPerMultiProcessor:
            *value = threads_per_multiprocessor;
            break;
        case cudaDevAttrAsyncEngineCount:
            *value = 2;
            break;
        case cudaDevAttrComputeCapabilityMajor:
            *value = major_capability;
            break;
        case cudaDevAttrComputeCapabilityMinor:
            *value = minor_capability;
            break;
        case cudaDevAttrStreamPrioritiesSupported:
            *value = 1;
            break;
        case cudaDevAttrClockRate:
            *value = 1'000'000;
            break;
        case cudaDevAttrMemoryClockRate:
            *value = 1'000'000;
            break;
        case cudaDevAttrGlobalMemoryBusWidth:
            *value = 5120;
            break;
        default:
            return report(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (!valid(device)) {
        return report(cudaErrorInvalidDevice);
    }
    if (pciBusId == nullptr || len < 13) {
        return report(cudaErrorInvalidValue);
    }
    std::snprintf(pciBusId, static_cast<size_t>(len), "0000:%02X:00.0",
                  static_cast<unsigned int>(device + 1));
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (leastPriority != nullptr) {
        *leastPriority = 0;
    }
    if (greatestPriority != nullptr) {
        *greatestPriority = -5;
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (!valid(device) || !valid(peerDevice)) {
        return report(cudaErrorInvalidDevice);
    }
    *canAccessPeer = device != peerDevice ? 1 : 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    return valid(peerDevice) && peerDevice != current_device() ? cudaSuccess
                                                               : report(cudaErrorInvalidDevice);
}

cudaError_t cudaFuncGetName(const char** name, const void* func) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (name == nullptr) {
        return report(cudaErrorInvalidValue);
    }
    *name = mangled_function_name(func);
    return *name == nullptr ? report(cudaErrorInvalidDeviceFunction) : cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* func, enum cudaFuncAttribute, int) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    return func == nullptr ? report(cudaErrorInvalidDeviceFunction) : cudaSuccess;
}

}  // extern "C"
