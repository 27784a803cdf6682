// SPDX-License-Identifier: Apache-2.0
// A GPU, or the stand-in toolkit: which of them, says what this file is linked with.
#include <array>

#include "kernels/cuda/operators.hpp"
#include "tests/conformance/test_device.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

class CudaDevice : public TestDevice {
public:
    CudaDevice() {
        // Where rows suit it; the products of other experts are one by one.
        usual_.context().cuda().group_experts(true);
    }
    const Operators& operators() const override { return cuda::operators(); }
    Context& context() override { return usual_.context(); }
    std::vector<Context*> workspaces() override {
        // They hold the sums of no piece, of a few, and of all.
        constexpr std::array<size_t, 3> kBytes{0, 2048, size_t{1} << 20};
        for (size_t i = 0; i < kBytes.size(); ++i) {
            if (!others_[i]) others_[i] = std::make_unique<Device>(kBytes[i]);
        }
        return {&others_[0]->context(), &others_[1]->context(), &others_[2]->context()};
    }
    std::shared_ptr<std::byte> allocate(size_t bytes) override {
        const auto memory = std::make_shared<DeviceBytes>(bytes);
        return {memory, static_cast<std::byte*>(memory->data())};
    }
    void upload(std::span<const std::byte> from, std::byte* to) override {
        usual_.upload(from.data(), to, from.size());
    }
    void download(const std::byte* from, std::span<std::byte> to) override {
        for (const auto& other : others_) {
            if (other) other->finish();
        }
        usual_.download(from, to.data(), to.size());
    }
#ifdef VOCABPIPE_ON_STAND_IN
    bool slow() const override {
        return true;
    }
#endif
    double early_rounding(const ConstTensor& out, int addends) const override {
        return rounded_early(out.dtype, out, addends);
    }
    bool adds_through_scratch() const override {
        return false;
    }
    bool scores_in_chunks() const override {
        return true;
    }
    // cuBLASLt may take tanh from the special function unit, to 2^-11 of its value: half of that in
    // the sigmoid, doubled to be safe.
    double fused_gelu_error(DType type) const override {
        return type == DType::bf16 ? 0x1p-11 : 0.0;
    }

private:
    Device usual_;
    std::array<std::unique_ptr<Device>, 3> others_;
};

}  // namespace

std::vector<DeviceUnderTest> devices_under_test() {
    return {{.name = "cuda",
             .open = []() -> std::unique_ptr<TestDevice> { return std::make_unique<CudaDevice>(); },
             .why_not = why_no_device}};
}

}  // namespace vocabpipe::kernels::test
