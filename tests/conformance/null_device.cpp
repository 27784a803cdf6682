// SPDX-License-Identifier: Apache-2.0
// The device null: most tests fail on it, and name the operator that they miss.
#include <cstring>

#include "src/runtime/device/null/device.hpp"
#include "tests/conformance/test_device.hpp"

namespace vocabpipe::kernels::test {
namespace {

class NullTestDevice : public TestDevice {
public:
    const Operators& operators() const override { return device_->operators(); }
    Context& context() override { return context_; }
    std::shared_ptr<std::byte> allocate(size_t bytes) override {
        const auto memory = std::make_shared<DeviceMemory>(device_->allocate(bytes, "a test"));
        device_->upload(std::vector(bytes, std::byte{0xff}), memory->data());
        return {memory, memory->data()};
    }
    void upload(std::span<const std::byte> from, std::byte* to) override {
        device_->upload(from, to);
    }
    void download(const std::byte* from, std::span<std::byte> to) override {
        device_->download(from, to);
    }

private:
    std::unique_ptr<Device> device_ = make_null_device();
    Context context_{device_->context(1, {})};
};

}  // namespace

std::vector<DeviceUnderTest> devices_under_test() {
    return {{.name = "null", .open = []() -> std::unique_ptr<TestDevice> {
                 return std::make_unique<NullTestDevice>();
             }}};
}

}  // namespace vocabpipe::kernels::test
