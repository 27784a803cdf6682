// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/device/null/device.hpp"

#include <algorithm>
#include <new>

#include "kernels/null/operators.hpp"
#include "src/runtime/lanes.hpp"
#include "src/runtime/tile_link/checks.hpp"
#include "src/runtime/tile_link/host.hpp"
#include "src/runtime/transport/transport.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

class NullDevice final : public Device {
public:
    [[nodiscard]] std::string name() const override { return "null"; }
    [[nodiscard]] const kernels::Operators& operators() const override {
        return kernels::null::operators();
    }
    [[nodiscard]] bool asynchronous() const override { return false; }

    [[nodiscard]] DeviceMemory allocate(uint64_t bytes, const std::string& what) override {
        constexpr std::align_val_t kPage{4096};
        if (bytes == 0) return {};
        auto* const memory = static_cast<std::byte*>(::operator new(bytes, kPage, std::nothrow));
        if (memory == nullptr) {
            throw OutOfMemoryError(what + ": " + std::to_string(bytes) +
                                   " bytes cannot be allocated on the device null");
        }
        std::fill_n(memory, bytes, std::byte{0});
        return {memory, bytes, [](std::byte* data) { ::operator delete(data, kPage); }};
    }
    [[nodiscard]] std::optional<Memory> memory() const override { return {}; }
    void upload(std::span<const std::byte> from, std::byte* to) override {
        std::copy(from.begin(), from.end(), to);
    }
    void download(const std::byte* from, std::span<std::byte> to) override {
        std::copy_n(from, to.size(), to.begin());
    }
    [[nodiscard]] DeviceMemory allocate_staging(uint64_t bytes) override {
        return allocate(bytes, "staging");
    }
    void enqueue_upload(std::span<const std::byte> from, std::byte* to) override {
        upload(from, to);
    }
    [[nodiscard]] bool idle() override { return true; }

    [[nodiscard]] ContextOptions context(int threads, std::function<void()> poll) override {
        return {.threads = threads, .poll = std::move(poll), .operators = &operators()};
    }
    [[nodiscard]] std::unique_ptr<Lanes> open_lanes() override { return std::make_unique<Lanes>(); }
    // The communicator's own reaches this memory.
    [[nodiscard]] std::unique_ptr<Transport> open_transport(Communicator&) override { return {}; }
    [[nodiscard]] std::unique_ptr<TileLink> open_tile_link(Transport& transport,
                                                           const WaitOptions& wait,
                                                           const TileLinkOptions& options,
                                                           Axis axis) override {
        return make_host_tile_link(transport, wait, options,
                                   tile_link::channel_of(axis, options.lane));
    }
};

}  // namespace

std::unique_ptr<Device> make_null_device() {
    return std::make_unique<NullDevice>();
}

}  // namespace vocabpipe
