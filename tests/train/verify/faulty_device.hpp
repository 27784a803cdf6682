// SPDX-License-Identifier: Apache-2.0
// A host one of whose operators computes something else: the faults that a verification must find.
#pragma once

#include "kernels/host/operators.hpp"
#include "src/runtime/device/forwarding_device.hpp"
#include "vocabpipe/operators.hpp"

#include <functional>
#include <memory>
#include <utility>

namespace vocabpipe::testing {

class FaultyDevice final : public ForwardingDevice {
public:
    /// `change` replaces entries of the host's table of operators.
    explicit FaultyDevice(const std::function<void(kernels::Operators&)>& change)
        : ForwardingDevice(make_host_device()), operators_(kernels::host::operators()) {
        change(operators_);
    }
    [[nodiscard]] const kernels::Operators& operators() const override { return operators_; }
    [[nodiscard]] ContextOptions context(int threads, std::function<void()> poll) override {
        ContextOptions options = ForwardingDevice::context(threads, std::move(poll));
        options.operators = &operators_;
        return options;
    }

private:
    kernels::Operators operators_;
};

}  // namespace vocabpipe::testing
