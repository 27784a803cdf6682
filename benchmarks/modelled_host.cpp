// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/modelled_host.hpp"

#include "src/runtime/lanes.hpp"
#include "src/runtime/transport/modelled_link.hpp"
#include "src/runtime/transport/transport.hpp"
#include "vocabpipe/world.hpp"

#include <utility>

namespace vocabpipe::bench {

namespace {

class ModelledHost final : public Device {
public:
    explicit ModelledHost(const Link& link) : link_(link) {}

    [[nodiscard]] std::string name() const override { return host_->name(); }
    [[nodiscard]] const kernels::Operators& operators() const override {
        return host_->operators();
    }
    [[nodiscard]] bool asynchronous() const override { return host_->asynchronous(); }
    [[nodiscard]] DeviceMemory allocate(uint64_t bytes, const std::string& what) override {
        return host_->allocate(bytes, what);
    }
    [[nodiscard]] std::optional<Memory> memory() const override { return host_->memory(); }
    void upload(std::span<const std::byte> from, std::byte* to) override {
        host_->upload(from, to);
    }
    void download(const std::byte* from, std::span<std::byte> to) override {
        host_->download(from, to);
    }
    [[nodiscard]] DeviceMemory allocate_staging(uint64_t bytes) override {
        return host_->allocate_staging(bytes);
    }
    void enqueue_upload(std::span<const std::byte> from, std::byte* to) override {
        host_->enqueue_upload(from, to);
    }
    [[nodiscard]] bool idle() override { return host_->idle(); }
    [[nodiscard]] ContextOptions context(int threads, std::function<void()> poll) override {
        return host_->context(threads, std::move(poll));
    }
    [[nodiscard]] std::unique_ptr<Lanes> open_lanes() override { return host_->open_lanes(); }
    [[nodiscard]] std::unique_ptr<Transport> open_transport(Communicator& communicator) override {
        return make_modelled_link(communicator.transport(), link_);
    }

private:
    Link link_;
    std::unique_ptr<Device> host_ = make_host_device();
};

}  // namespace

std::unique_ptr<Device> make_modelled_host(const Link& link) {
    return std::make_unique<ModelledHost>(link);
}

}  // namespace vocabpipe::bench
