// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "../driver_types.h"

namespace cuda_stand_in {

/// A kernel with its arguments: run(call) executes it for the thread that threadIdx names.
struct KernelCall {
    const void* kernel;  ///< address of the kernel, for messages
    void (*run)(const void* call);
    std::shared_ptr<const void> call;
};

[[nodiscard]] cudaError_t launch(const cudaLaunchConfig_t& config, KernelCall call);

}  // namespace cuda_stand_in

/// Parameters are converted here and copied once, as the real launch does.
template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
    static_assert((std::is_trivially_copyable_v<Parameters> && ... && true),
                  "kernel parameters are copied to the device byte by byte");
    static_assert((sizeof(Parameters) + ... + 0) <= 32764,
                  "kernel parameters are limited to 32764 bytes");
    struct Call {
        void (*kernel)(Parameters...);
        std::tuple<Parameters...> arguments;
    };
    const auto run = [](const void* call) {
        const auto& [function, values] = *static_cast<const Call*>(call);
        std::apply(function, values);
    };
    return cuda_stand_in::launch(
        *config, {reinterpret_cast<const void*>(kernel), run,
                  std::make_shared<const Call>(Call{
                      kernel, std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)})});
}
