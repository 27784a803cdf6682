// SPDX-License-Identifier: Apache-2.0
// What the conformance tests ask of a device. To test one, derive a TestDevice from it, define
// devices_under_test() in the same file, and link operators_conformance (docs/extending.md):
// null_device.cpp is an example.
#pragma once

#include <cstddef>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "vocabpipe/context.hpp"
#include "vocabpipe/operators.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::test {

class TestDevice {
public:
    virtual ~TestDevice() = default;
    [[nodiscard]] virtual const Operators& operators() const = 0;
    /// Operators are called with this one.
    [[nodiscard]] virtual Context& context() = 0;
    /// Contexts with other numbers of threads: operators give the same bits with all of them.
    [[nodiscard]] virtual std::vector<Context*> threads() { return {&context()}; }
    /// Contexts with less memory of the device's own: sums over rows need none of it to be right.
    [[nodiscard]] virtual std::vector<Context*> workspaces() { return {&context()}; }

    /// Memory of the device, all bits set: every fp32, bf16 and double in it is NaN.
    [[nodiscard]] virtual std::shared_ptr<std::byte> allocate(size_t bytes) = 0;
    /// Complete on return.
    virtual void upload(std::span<const std::byte> from, std::byte* to) = 0;
    /// Waits for all operators that were called, and throws what went wrong in them.
    virtual void download(const std::byte* from, std::span<std::byte> to) = 0;

    /// Large cases are left out where this is true.
    [[nodiscard]] virtual bool slow() const { return false; }
    /// Error in units of |result| + 1 of a product that is rounded to the type of `out` before
    /// `addends` numbers of at most 1 (bias, residual) are added. 0: it is rounded once.
    [[nodiscard]] virtual double early_rounding(const ConstTensor& /*out*/, int /*addends*/) const {
        return 0;
    }
    /// Whether linear_add_forward() rounds the product before it adds a residual of out's type.
    [[nodiscard]] virtual bool adds_through_scratch() const { return true; }
    /// Whether vocabulary_score() goes through the columns in chunks where its workspace is smaller
    /// than what it asks for.
    [[nodiscard]] virtual bool scores_in_chunks() const { return false; }
    /// Error of the sigmoid in gelu_tanh that is computed together with a product into `type`.
    [[nodiscard]] virtual double fused_gelu_error(DType /*type*/) const { return 0; }
};

struct DeviceUnderTest {
    std::string name;  ///< letters and digits: a part of the names of tests
    std::unique_ptr<TestDevice> (*open)();
    /// Why it cannot be tested here; empty if it can.
    std::string (*why_not)() = [] { return std::string(); };
    /// The fp64 loops: they check no arguments, and promise no bits.
    bool reference = false;

    friend void PrintTo(const DeviceUnderTest& device, std::ostream* out) { *out << device.name; }
};

/// Each program defines its own.
[[nodiscard]] std::vector<DeviceUnderTest> devices_under_test();

}  // namespace vocabpipe::kernels::test
