// SPDX-License-Identifier: Apache-2.0
// One rank of an NCCL world of threads, a device each if there are enough.
#pragma once

#include "src/runtime/device/cuda/handles.hpp"
#include "src/runtime/transport/nccl/transport.hpp"
#include "tests/runtime/cuda_devices.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

namespace vocabpipe::testing {

using HostBytes = std::vector<std::byte>;

/// One rank: device, streams, transport.
struct End {
    explicit End(Communicator& c) : control(c) {
        cudaSetDevice(gpu_of(c.rank()));
        for (cuda::Stream& one : owned) one = cuda::make_stream(0);
        streams = {owned[0].get(), owned[1].get(), owned[2].get()};
        transport = nccl::make_transport(c, streams);
    }
    /// Everything that was enqueued has run; a failure or a hang is an error.
    void finish() {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        for (const cuda::Stream& stream : owned) {
            while (cudaStreamQuery(stream.get()) != cudaSuccess) {
                transport->check_health();
                if (std::chrono::steady_clock::now() > deadline) {
                    throw std::runtime_error("streams do not end");
                }
                std::this_thread::yield();
            }
        }
    }
    void enqueue(Ticket ticket) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (!transport->test(ticket)) {
            if (std::chrono::steady_clock::now() > deadline) {
                throw std::runtime_error("a transfer is not enqueued");
            }
            std::this_thread::yield();
        }
    }
    /// Transfers to their end. On the way out with an error the transport goes first, as the
    /// executor does it: memory that NCCL still uses cannot be freed.
    void run(const std::vector<Transfer>& transfers, const std::function<void()>& enqueued = {}) {
        try {
            std::vector<Ticket> tickets;
            for (const Transfer& transfer : transfers) {
                tickets.push_back(transport->start(transfer));
            }
            for (const Ticket ticket : tickets) enqueue(ticket);
            if (enqueued) enqueued();
            finish();
        } catch (const std::exception&) {
            transport->cancel();
            for (const cuda::Stream& stream : owned) cudaStreamSynchronize(stream.get());
            throw;
        }
    }
    Communicator& control;
    std::array<cuda::Stream, 3> owned;
    TransportStreams streams;
    std::unique_ptr<Transport> transport;
};

/// Memory of the current device.
class DeviceBytes {
public:
    explicit DeviceBytes(size_t size) : size_(size) {
        void* memory = nullptr;
        cuda::check(cudaMalloc(&memory, std::max<size_t>(size, 1)), "cudaMalloc");
        memory_.reset(static_cast<std::byte*>(memory));
    }
    explicit DeviceBytes(const HostBytes& content) : DeviceBytes(content.size()) {
        if (size_ == 0) return;
        cuda::check(cudaMemcpy(memory_.get(), content.data(), size_, cudaMemcpyHostToDevice),
                    "cudaMemcpy");
    }
    [[nodiscard]] std::span<std::byte> span() const { return {memory_.get(), size_}; }
    [[nodiscard]] HostBytes read() const {
        HostBytes content(size_);
        if (size_ > 0) {
            cuda::check(cudaMemcpy(content.data(), memory_.get(), size_, cudaMemcpyDeviceToHost),
                        "cudaMemcpy");
        }
        return content;
    }

private:
    struct Free {
        void operator()(std::byte* memory) const { cudaFree(memory); }
    };
    size_t size_;
    std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace vocabpipe::testing
