// SPDX-License-Identifier: Apache-2.0
// Devices whose memory is the host's: the host itself, and the fp64 loops with which all are
// compared.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "kernels/host/operators.hpp"
#include "kernels/reference/operators.hpp"
#include "tests/conformance/test_device.hpp"

namespace vocabpipe::kernels::test {

/// The host's where the reference has no loops.
inline const Operators& reference_operators() {
    static const Operators kTable = [] {
        Operators table = host::operators();
#define VOCABPIPE_OPERATOR(name) table.name = reference::name;
#define VOCABPIPE_DEVICE_OPERATOR(name)
#include "kernels/operator_list.inc"
        return table;
    }();
    return kTable;
}

class HostMemory : public TestDevice {
public:
    explicit HostMemory(const Operators& operators) : operators_(operators) {}
    const Operators& operators() const override { return operators_; }
    Context& context() override { return one_; }
    std::vector<Context*> threads() override { return {&one_, &two_, &three_}; }

    std::shared_ptr<std::byte> allocate(size_t bytes) override {
        // Vectors of 64 bytes are aligned, and nothing is null.
        auto* const memory = static_cast<std::byte*>(
            ::operator new (std::max<size_t>(bytes, 1), std::align_val_t{64}));
        std::memset(memory, 0xff, bytes);
        return {memory, [](std::byte* p) { ::operator delete (p, std::align_val_t{64}); }};
    }
    void upload(std::span<const std::byte> from, std::byte* to) override {
        if (!from.empty()) std::memcpy(to, from.data(), from.size());
    }
    void download(const std::byte* from, std::span<std::byte> to) override {
        if (!to.empty()) std::memcpy(to.data(), from, to.size());
    }

private:
    const Operators& operators_;
    Context one_{{.threads = 1, .poll = {}, .operators = &operators_}};
    Context two_{{.threads = 2, .poll = {}, .operators = &operators_}};
    Context three_{{.threads = 3, .poll = {}, .operators = &operators_}};
};

}  // namespace vocabpipe::kernels::test
