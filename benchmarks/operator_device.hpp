// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "vocabpipe/context.hpp"
#include "vocabpipe/operators.hpp"

namespace vocabpipe::bench {

/// A device for timing single operators: their table, memory and a clock.
class OperatorDevice {
public:
    OperatorDevice() = default;
    virtual ~OperatorDevice() = default;
    OperatorDevice(const OperatorDevice&) = delete;
    OperatorDevice& operator=(const OperatorDevice&) = delete;

    /// The heading of a table.
    [[nodiscard]] virtual std::string name() const = 0;
    [[nodiscard]] virtual Context& context() = 0;
    [[nodiscard]] virtual const kernels::Operators& operators() const = 0;
    /// Allocates memory for operators, owned by the pointer. Throws OutOfMemoryError.
    [[nodiscard]] virtual std::shared_ptr<std::byte> allocate(size_t bytes) = 0;
    /// `from` may change after the return.
    virtual void upload(const void* from, std::byte* to, size_t bytes) = 0;
    /// Seconds of one run of `work` by the device's clock, over `runs` runs, one after the other.
    /// DeviceError for failures in them.
    [[nodiscard]] virtual double seconds(const std::function<void()>& work, int runs) = 0;
    /// Which code multiplied so far, in one line; empty if there is only one.
    [[nodiscard]] virtual std::string products() { return {}; }
    /// Number of runs for operators that take less time than their launch, so that launches
    /// overlap.
    [[nodiscard]] virtual int runs_of_short_operators() const = 0;
};

[[nodiscard]] std::unique_ptr<OperatorDevice> host_operators(int threads);
/// GPU 0; in programs with CUDA only. Throws DeviceError without one.
[[nodiscard]] std::unique_ptr<OperatorDevice> cuda_operators();

}  // namespace vocabpipe::bench
