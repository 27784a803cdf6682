// SPDX-License-Identifier: Apache-2.0
#include "tests/support/blocking_device.hpp"

#include "src/runtime/device/forwarding_device.hpp"
#include "src/runtime/tile_link/host.hpp"
#include "vocabpipe/tile_link.hpp"
#include "vocabpipe/world.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::testing {

namespace {

using HostBytes = std::vector<std::byte>;

class BlockingExchange final : public TileLink::Exchange {
public:
    BlockingExchange(Device& device, TileLink& host, std::string name,
                     std::span<const TileLink::Outgoing> send,
                     std::span<const TileLink::Incoming> receive)
        : device_(device),
          host_(host),
          name_(std::move(name)),
          send_(send.begin(), send.end()),
          receive_(receive.begin(), receive.end()),
          released_(send.size(), 0) {}

    void release(int member, int pieces) override {
        int& released = released_.at(static_cast<size_t>(member));
        released = std::max(released, pieces);
    }
    [[nodiscard]] int wait(int member, int /*pieces*/) override {
        exchange();
        return static_cast<int>(receive_.at(static_cast<size_t>(member)).ends.size());
    }
    [[nodiscard]] bool test(int /*member*/, int /*pieces*/) override { return exchanged_; }
    void finish() override { exchange(); }

private:
    void exchange() {
        if (std::exchange(exchanged_, true)) return;
        std::vector<HostBytes> out, in;
        std::vector<std::vector<int64_t>> ends;  // whole parts
        std::vector<TileLink::Outgoing> send;
        std::vector<TileLink::Incoming> receive;
        out.reserve(send_.size());
        in.reserve(send_.size());
        ends.reserve(2 * send_.size());
        const auto whole = [&](size_t size) -> std::span<const int64_t> {
            return ends.emplace_back(size > 0 ? 1 : 0, static_cast<int64_t>(size));
        };
        for (size_t m = 0; m < send_.size(); ++m) {
            if (released_[m] != static_cast<int>(send_[m].ends.size())) {
                throw std::logic_error(name_ + ": not all is released");
            }
            HostBytes& leaves = out.emplace_back(send_[m].bytes.size());
            if (!leaves.empty()) device_.download(send_[m].bytes.data(), leaves);
            send.push_back({.bytes = leaves, .ends = whole(leaves.size())});
            HostBytes& arrives = in.emplace_back(receive_[m].bytes.size());
            receive.push_back({.bytes = arrives, .ends = whole(arrives.size())});
        }
        TileLink::Operation operation = host_.all_to_all(send, receive, {.what = name_});
        for (int i = 0; i < host_.size(); ++i) {
            const int member = host_.to(i);
            operation.release(member,
                              static_cast<int>(send[static_cast<size_t>(member)].ends.size()));
        }
        operation.finish();
        for (size_t m = 0; m < receive_.size(); ++m) {
            if (!in[m].empty()) device_.upload(in[m], receive_[m].bytes.data());
        }
    }

    Device& device_;
    TileLink& host_;
    std::string name_;
    std::vector<TileLink::Outgoing> send_;
    std::vector<TileLink::Incoming> receive_;
    std::vector<int> released_;  ///< [member] pieces
    bool exchanged_ = false;
};

class BlockingLink final : public TileLink {
public:
    BlockingLink(Device& device, std::unique_ptr<TileLink> host)
        : device_(device), host_(std::move(host)) {}

    [[nodiscard]] int rank() const override { return host_->rank(); }
    [[nodiscard]] int size() const override { return host_->size(); }
    [[nodiscard]] Operation all_to_all(std::span<const Outgoing> send,
                                       std::span<const Incoming> receive, Name name) override {
        return Operation(std::make_unique<BlockingExchange>(device_, *host_, std::string(name.what),
                                                            send, receive));
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
    [[nodiscard]] std::unique_ptr<TileLink> open_tile_link(
        Transport& /*transport*/, const WaitOptions& wait,
        const TileLinkOptions& options) override {
        return std::make_unique<BlockingLink>(
            *this, make_host_tile_link(communicator_->transport(), wait, options));
    }

private:
    Communicator* communicator_ = nullptr;
};

}  // namespace

std::unique_ptr<Device> make_blocking_device(std::unique_ptr<Device> inner) {
    return std::make_unique<BlockingDevice>(std::move(inner));
}

}  // namespace vocabpipe::testing
