// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "vocabpipe/context.hpp"
#include "vocabpipe/operators.hpp"

namespace vocabpipe::bench {

/// Where operators run that are timed one by one: their table, memory and a clock.
class OperatorDevice {
public:
    OperatorDevice() = default;
    virtual ~OperatorDevice() = default;
    OperatorDevice(const OperatorDevice&) = delete;
    OperatorDevice& operator=(const OperatorDevice&) = delete;

    /// For the heading of a table.
    [[nodiscard]] virtual std::string name() const = 0;
    [[nodiscard]] virtual Context& context() = 0;
    [[nodiscard]] virtual const kernels::Operators& operators() const = 0;
    /// Memory for operators, which the pointer owns. Throws OutOfMemoryError.
    [[nodiscard]] virtual std::shared_ptr<std::byte> allocate(size_t bytes) = 0;
    /// Once it returns, `from` may change.
    virtual void upload(const void* from, std::byte* to, size_t bytes) = 0;
    /// What one run of `work` takes, by the device's clock, of `runs` one after the other. Throws
    /// DeviceError for what went wrong in them.
    [[nodiscard]] virtual double seconds(const std::function<void()>& work, int runs) = 0;
    /// Which code has multiplied so far, in one line; empty where there is one only.
    [[nodiscard]] virtual std::string products() { return {}; }
    /// Runs of operators that take less time than their launch: together they show their own.
    [[nodiscard]] virtual int runs_of_short_operators() const = 0;
};

[[nodiscard]] std::unique_ptr<OperatorDevice> host_operators(int threads);
/// GPU 0; in programs with CUDA only. Throws DeviceError without one.
[[nodiscard]] std::unique_ptr<OperatorDevice> cuda_operators();

}  // namespace vocabpipe::bench
