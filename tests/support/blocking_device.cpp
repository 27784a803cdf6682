// SPDX-License-Identifier: Apache-2.0
#include "tests/support/blocking_device.hpp"

#include "src/runtime/device/forwarding_device.hpp"
#include "src/runtime/tile_link/checks.hpp"
#include "src/runtime/tile_link/host.hpp"
#include "tests/support/blocking_exchange.hpp"
#include "vocabpipe/tile_link.hpp"
#include "vocabpipe/world.hpp"

#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe::testing {

namespace {

using HostBytes = std::vector<std::byte>;

class HostExchange final : public BlockingExchange {
public:
    HostExchange(Device& device, TileLink& host, std::string_view name,
                 std::span<const TileLink::Outgoing> send,
                 std::span<const TileLink::Incoming> receive)
        : BlockingExchange(send, receive, name), device_(device), host_(host) {}

private:
    void move_all() override {
        std::vector<HostBytes> out, in;
        std::vector<std::vector<int64_t>> ends;  // whole parts
        std::vector<TileLink::Outgoing> leave;
        std::vector<TileLink::Incoming> arrive;
        out.reserve(send().size());
        in.reserve(send().size());
        ends.reserve(2 * send().size());
        const auto whole = [&](size_t size) -> std::span<const int64_t> {
            return ends.emplace_back(size > 0 ? 1 : 0, static_cast<int64_t>(size));
        };
        for (size_t m = 0; m < send().size(); ++m) {
            HostBytes& leaves = out.emplace_back(send()[m].bytes.size());
            if (!leaves.empty()) device_.download(send()[m].bytes.data(), leaves);
            leave.push_back({.bytes = leaves, .ends = whole(leaves.size())});
            HostBytes& arrives = in.emplace_back(receive()[m].bytes.size());
            arrive.push_back({.bytes = arrives, .ends = whole(arrives.size())});
        }
        TileLink::Operation operation = host_.all_to_all(leave, arrive, {.what = name()});
        for (int i = 0; i < host_.size(); ++i) {
            const int member = host_.to(i);
            operation.release(member,
                              static_cast<int>(leave[static_cast<size_t>(member)].ends.size()));
        }
        operation.finish();
        for (size_t m = 0; m < receive().size(); ++m) {
            if (!in[m].empty()) device_.upload(in[m], receive()[m].bytes.data());
        }
    }

    Device& device_;
    TileLink& host_;
};

class BlockingLink final : public TileLink {
public:
    BlockingLink(Device& device, std::unique_ptr<TileLink> host)
        : device_(device), host_(std::move(host)) {}

    [[nodiscard]] int rank() const override { return host_->rank(); }
    [[nodiscard]] int size() const override { return host_->size(); }
    [[nodiscard]] Operation all_to_all(std::span<const Outgoing> send,
                                       std::span<const Incoming> receive, Name name,
                                       Order /*order*/) override {
        return Operation(std::make_unique<HostExchange>(device_, *host_, name.what, send, receive));
    }
    void poll() override { host_->poll(); }

private:
    Device& device_;
    std::unique_ptr<TileLink> host_;
};

class BlockingDevice final : public ForwardingDevice {
public:
    explicit BlockingDevice(std::unique_ptr<Device> inner) : ForwardingDevice(std::move(inner)) {}

    [[nodiscard]] std::unique_ptr<Transport> open_transport(Communicator& communicator) override {
        communicator_ = &communicator;
        return ForwardingDevice::open_transport(communicator);
    }
    [[nodiscard]] std::unique_ptr<TileLink> open_tile_link(Transport& /*transport*/,
                                                           const WaitOptions& wait,
                                                           const TileLinkOptions& options,
                                                           Axis axis) override {
        return std::make_unique<BlockingLink>(
            *this, make_host_tile_link(communicator_->transport(), wait, options,
                                       tile_link::channel_of(axis, options.lane)));
    }

private:
    Communicator* communicator_ = nullptr;
};

}  // namespace

std::unique_ptr<Device> make_blocking_device(std::unique_ptr<Device> inner) {
    return std::make_unique<BlockingDevice>(std::move(inner));
}

}  // namespace vocabpipe::testing
