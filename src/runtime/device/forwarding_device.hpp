// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/lanes.hpp"
#include "src/runtime/transport/transport.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/tile_link.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace vocabpipe {

/// Forwards everything to another device: a base for devices that differ in little, such as those
/// of tests and benchmarks.
class ForwardingDevice : public Device {
public:
    explicit ForwardingDevice(std::unique_ptr<Device> inner) : inner_(std::move(inner)) {}

    [[nodiscard]] std::string name() const override { return inner_->name(); }
    [[nodiscard]] const kernels::Operators& operators() const override {
        return inner_->operators();
    }
    [[nodiscard]] bool asynchronous() const override { return inner_->asynchronous(); }
    [[nodiscard]] CommunicationOrder communication_order() const override {
        return inner_->communication_order();
    }
    [[nodiscard]] DeviceMemory allocate(uint64_t bytes, const std::string& what) override {
        return inner_->allocate(bytes, what);
    }
    [[nodiscard]] std::optional<Memory> memory() const override { return inner_->memory(); }
    void upload(std::span<const std::byte> from, std::byte* to) override {
        inner_->upload(from, to);
    }
    void download(const std::byte* from, std::span<std::byte> to) override {
        inner_->download(from, to);
    }
    [[nodiscard]] DeviceMemory allocate_staging(uint64_t bytes) override {
        return inner_->allocate_staging(bytes);
    }
    void enqueue_upload(std::span<const std::byte> from, std::byte* to) override {
        inner_->enqueue_upload(from, to);
    }
    [[nodiscard]] bool idle() override { return inner_->idle(); }
    [[nodiscard]] ContextOptions context(int threads, std::function<void()> poll) override {
        return inner_->context(threads, std::move(poll));
    }
    [[nodiscard]] std::unique_ptr<Lanes> open_lanes() override { return inner_->open_lanes(); }
    [[nodiscard]] std::unique_ptr<Transport> open_transport(Communicator& communicator) override {
        return inner_->open_transport(communicator);
    }
    [[nodiscard]] std::unique_ptr<TileLink> open_tile_link(Transport& transport,
                                                           const WaitOptions& wait,
                                                           const TileLinkOptions& options,
                                                           Axis axis) override {
        return inner_->open_tile_link(transport, wait, options, axis);
    }

private:
    std::unique_ptr<Device> inner_;
};

}  // namespace vocabpipe
