// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/operator_device.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "kernels/host/operators.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::bench {

namespace {

class HostOperators final : public OperatorDevice {
public:
    explicit HostOperators(int threads) : context_({.threads = threads, .poll = {}}) {}

    [[nodiscard]] std::string name() const override {
        return "host, " + std::to_string(context_.threads()) + " threads";
    }
    [[nodiscard]] Context& context() override { return context_; }
    [[nodiscard]] const kernels::Operators& operators() const override {
        return kernels::host::operators();
    }
    [[nodiscard]] std::shared_ptr<std::byte> allocate(size_t bytes) override {
        constexpr size_t kLine = 64;
        void* const data = std::aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine);
        if (data == nullptr) {
            throw OutOfMemoryError(std::to_string(bytes) + " bytes do not fit the host's memory");
        }
        return {static_cast<std::byte*>(data), [](std::byte* memory) { std::free(memory); }};
    }
    void upload(const void* from, std::byte* to, size_t bytes) override {
        std::memcpy(to, from, bytes);
    }
    [[nodiscard]] double seconds(const std::function<void()>& work, int runs) override {
        const auto begin = std::chrono::steady_clock::now();
        for (int run = 0; run < runs; ++run) work();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
               runs;
    }
    [[nodiscard]] int runs_of_short_operators() const override { return 1; }

private:
    Context context_;
};

}  // namespace

std::unique_ptr<OperatorDevice> host_operators(int threads) {
    return std::make_unique<HostOperators>(threads);
}

}  // namespace vocabpipe::bench
