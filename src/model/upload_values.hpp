// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/bf16.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace vocabpipe {

/// Uploads fp32 values of the host, rounded to the type of `to`, to its elements from `first` on.
/// `to`: dense, in the device's memory, fp32 or bf16.
inline void upload_values(Device& device, std::span<const float> values, Tensor to, int64_t first) {
    kernels::with_type(to.dtype, [&]<typename T>() {
        auto* const at = reinterpret_cast<std::byte*>(to.as<T>() + first);
        if constexpr (std::is_same_v<T, float>) {
            device.upload(std::as_bytes(values), at);
        } else {
            std::vector<T> rounded;
            rounded.reserve(values.size());
            for (const float value : values) rounded.push_back(kernels::from_float<T>(value));
            device.upload(std::as_bytes(std::span(rounded)), at);
        }
    });
}

}  // namespace vocabpipe
