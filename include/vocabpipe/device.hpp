// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/cost_model.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace vocabpipe {

class Communicator;
class Lanes;
class TileLink;
class Transport;
struct TileLinkOptions;
struct WaitOptions;

/// Memory of a device, page-aligned and zeroed; given back by the destructor.
class DeviceMemory {
public:
    DeviceMemory() = default;
    /// Takes over `data`; `free` gives it back.
    DeviceMemory(std::byte* data, uint64_t size, std::function<void(std::byte*)> free)
        : data_(data, std::move(free)), size_(size) {}
    /// First byte, or null.
    [[nodiscard]] std::byte* data() const { return data_.get(); }
    /// Bytes; 0 when empty.
    [[nodiscard]] uint64_t size() const { return data_ ? size_ : 0; }
    /// All of it.
    [[nodiscard]] std::span<std::byte> bytes() const { return {data(), size()}; }

private:
    std::unique_ptr<std::byte, std::function<void(std::byte*)>> data_{nullptr, nullptr};
    uint64_t size_ = 0;
};

/// The device that one rank computes on, with the memory of its tensors. Used by the rank's thread
/// only, and outlives everything that was allocated from it.
class Device {
public:
    virtual ~Device() = default;
    /// "host", or the GPU's name and ordinal.
    [[nodiscard]] virtual std::string name() const = 0;
    /// The operators that compute on its memory (operators.hpp).
    [[nodiscard]] virtual const kernels::Operators& operators() const = 0;
    /// True: actions are enqueued on streams and run in the order that their lanes and the waits
    /// between lanes give, and nothing waits for the host within a step. False: an action has run
    /// when its call returns.
    [[nodiscard]] virtual bool asynchronous() const = 0;
    /// Order in which its lanes run communication over the transport of open_transport(); for cost
    /// models.
    [[nodiscard]] virtual CommunicationOrder communication_order() const {
        return CommunicationOrder::lanes;
    }

    /// Throws OutOfMemoryError naming `what`.
    [[nodiscard]] virtual DeviceMemory allocate(uint64_t bytes, const std::string& what) = 0;
    /// Memory of the device, in use by any process or free. The host device reports none: there the
    /// operating system decides.
    struct Memory {
        uint64_t free = 0;   ///< bytes
        uint64_t total = 0;  ///< bytes
        /// Largest sum of allocations from this Device at one time, without other processes and
        /// without what the driver keeps and rounds up.
        uint64_t most_allocated = 0;
    };
    /// Bytes of the whole device.
    [[nodiscard]] virtual std::optional<Memory> memory() const = 0;
    /// Copies between the host's memory and the device's, complete on return; not within a step.
    virtual void upload(std::span<const std::byte> from, std::byte* to) = 0;
    /// The reverse of upload().
    virtual void download(const std::byte* from, std::span<std::byte> to) = 0;
    /// Memory of the host that enqueue_upload() takes without waiting for the device.
    [[nodiscard]] virtual DeviceMemory allocate_staging(uint64_t bytes) = 0;
    /// Enqueues a copy that runs before every action enqueued later. `from` comes from
    /// allocate_staging() and must not change until the copy has run.
    virtual void enqueue_upload(std::span<const std::byte> from, std::byte* to) = 0;
    /// Whether everything enqueued on all lanes has run.
    [[nodiscard]] virtual bool idle() = 0;

    /// The options of a Context for operators on this device. `threads`: for operators on the host.
    [[nodiscard]] virtual ContextOptions context(int threads, std::function<void()> poll) = 0;
    /// Streams of the executor's lanes, for one executor.
    [[nodiscard]] virtual std::unique_ptr<Lanes> open_lanes() = 0;
    /// The transport for this device's memory between the ranks; null: the communicator's own is
    /// used. Collective.
    [[nodiscard]] virtual std::unique_ptr<Transport> open_transport(Communicator& communicator) = 0;
    /// For passes that a team of ranks runs together on their devices of this kind: those that
    /// share a stage (Axis::tensor), sequences (Axis::context) or the experts of a layer
    /// (Axis::expert), whose messages do not meet. `transport` moves the memory; it and `wait` must
    /// outlive the link. Before the first step. Collective over the world: every rank opens one
    /// link, and no rank is in two of the teams. Throws UsageError unless the team's ranks are
    /// distinct, exist, and have this rank among them, and for other axes. Links of one's own:
    /// open_tile_link() (tile_link.hpp).
    [[nodiscard]] virtual std::unique_ptr<TileLink> open_tile_link(Transport& transport,
                                                                   const WaitOptions& wait,
                                                                   const TileLinkOptions& options,
                                                                   Axis axis) = 0;
};

[[nodiscard]] std::unique_ptr<Device> make_host_device();

}  // namespace vocabpipe
