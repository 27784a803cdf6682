// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/tile_link/host.hpp"
#include "kernels/host/operators.hpp"
#include "src/runtime/lanes.hpp"
#include "src/runtime/tile_link/checks.hpp"
#include "src/runtime/transport/transport.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/error.hpp"

#include <sys/mman.h>
#include <algorithm>

namespace vocabpipe {

namespace {

class HostDevice final : public Device {
public:
    [[nodiscard]] std::string name() const override { return "host"; }
    [[nodiscard]] const kernels::Operators& operators() const override {
        return kernels::host::operators();
    }
    [[nodiscard]] bool asynchronous() const override { return false; }

    /// Maps memory directly from the system, so that freeing returns it and resident memory equals
    /// the planned number. Every page is touched here, so that a step never faults.
    [[nodiscard]] DeviceMemory allocate(uint64_t bytes, const std::string& what) override {
        if (bytes == 0) return {};
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (memory == MAP_FAILED) {
            throw OutOfMemoryError(what + ": " + std::to_string(bytes) +
                                   " bytes cannot be allocated; use a smaller model or microbatch, "
                                   "more ranks, or another --vocab-mode");
        }
        return {static_cast<std::byte*>(memory), bytes,
                [bytes](std::byte* data) { munmap(data, bytes); }};
    }
    [[nodiscard]] std::optional<Memory> memory() const override { return {}; }
    [[nodiscard]] bool idle() override { return true; }
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

    [[nodiscard]] ContextOptions context(int threads, std::function<void()> poll) override {
        return {.threads = threads, .poll = std::move(poll)};
    }
    [[nodiscard]] std::unique_ptr<Lanes> open_lanes() override { return std::make_unique<Lanes>(); }
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

std::unique_ptr<Device> make_host_device() {
    return std::make_unique<HostDevice>();
}

}  // namespace vocabpipe
