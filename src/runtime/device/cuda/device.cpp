// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/cuda/device.hpp"

#include "kernels/cuda/operators.hpp"
#include "kernels/cuda/pinned_memory.hpp"
#include "kernels/cuda/product_choices.hpp"
#include "src/runtime/device/cuda/lanes.hpp"
#include "src/runtime/tile_link/checks.hpp"
#include "src/runtime/tile_link/streams.hpp"
#include "src/runtime/transport/device_copies/transport.hpp"
#include "src/runtime/transport/nccl/transport.hpp"
#include "vocabpipe/cuda/stream.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/world.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace vocabpipe {

namespace cuda {

namespace {

std::string mib(uint64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
    return text;
}

class CudaDevice final : public Device {
public:
    explicit CudaDevice(const CudaDeviceOptions& options)
        : options_(options), ordinal_(select(options.ordinal)), engine_(ordinal_) {
        cudaDeviceProp properties{};
        check(cudaGetDeviceProperties(&properties, ordinal_), "cudaGetDeviceProperties");
        name_ = std::string(properties.name) + " (cuda:" + std::to_string(ordinal_) + ")";
        queues_[static_cast<size_t>(Lane::compute)] = queue(Lane::compute, pass_workspace_);
        queues_[static_cast<size_t>(Lane::local)] = queue(Lane::local, combine_workspace_);
        engine_.use(queues_[static_cast<size_t>(Lane::compute)]);
        engine_.leave_multiprocessors(options_.left_multiprocessors.value_or(0));
        engine_.let_attention_vary(options_.nondeterministic_attention);
        if (!options_.product_choices.empty()) use_choices(properties.name);
    }

    [[nodiscard]] std::string name() const override { return name_; }
    [[nodiscard]] const kernels::Operators& operators() const override {
        return kernels::cuda::operators();
    }
    [[nodiscard]] bool asynchronous() const override { return true; }
    [[nodiscard]] CommunicationOrder communication_order() const override {
        return options_.transport == CudaTransport::copies ? CommunicationOrder::streams
                                                           : CommunicationOrder::launches;
    }

    [[nodiscard]] DeviceMemory allocate(uint64_t bytes, const std::string& what) override {
        if (bytes == 0) return {};
        void* data = nullptr;
        const cudaError_t status = cudaMalloc(&data, bytes);
        if (status == cudaErrorMemoryAllocation) {
            (void)cudaGetLastError();  // else the next check would report it again
            throw OutOfMemoryError(what + ": " + mib(bytes) + " cannot be allocated on " + name_ +
                                   ", but only " + mib(memory()->free) +
                                   " are free; use a smaller model or microbatch, more ranks, or "
                                   "another --vocab-mode");
        }
        check(status, "cudaMalloc");
        const uint64_t now = allocated_ += bytes;
        for (uint64_t most = most_allocated_; most < now;) {
            if (most_allocated_.compare_exchange_weak(most, now)) break;
        }
        DeviceMemory made(static_cast<std::byte*>(data), bytes, [this, bytes](std::byte* given) {
            (void)cudaFree(given);
            allocated_ -= bytes;
        });
        check(cudaMemset(data, 0, bytes), "cudaMemset");
        check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
        return made;
    }
    [[nodiscard]] std::optional<Memory> memory() const override {
        size_t free = 0;
        size_t total = 0;
        check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
        return Memory{.free = free, .total = total, .most_allocated = most_allocated_};
    }
    // On the stream of the passes, so that copies are ordered with operators outside of steps.
    void upload(std::span<const std::byte> from, std::byte* to) override {
        copy(to, from.data(), from.size(), cudaMemcpyHostToDevice);
    }
    void download(const std::byte* from, std::span<std::byte> to) override {
        copy(to.data(), from, to.size(), cudaMemcpyDeviceToHost);
    }
    [[nodiscard]] DeviceMemory allocate_staging(uint64_t bytes) override {
        if (bytes == 0) return {};
        return {kernels::cuda::allocate_pinned(bytes, "staging for " + name_ + ": " + mib(bytes)),
                bytes, [](std::byte* given) { (void)cudaFreeHost(given); }};
    }
    /// On the stream of the passes; other lanes use a batch only after a pass of this rank.
    void enqueue_upload(std::span<const std::byte> from, std::byte* to) override {
        check(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice,
                              streams_.of(Lane::compute)),
              "cudaMemcpyAsync");
    }
    [[nodiscard]] bool idle() override {
        for (const Stream& stream : streams_.streams) {
            if (!has_ended(cudaStreamQuery(stream.get()), "cudaStreamQuery")) return false;
        }
        return true;
    }

    [[nodiscard]] ContextOptions context(int threads, std::function<void()> poll) override {
        return {.threads = threads,
                .poll = std::move(poll),
                .operators = &operators(),
                .cuda = &engine_};
    }
    [[nodiscard]] std::unique_ptr<Lanes> open_lanes() override {
        return std::make_unique<CudaLanes>(engine_, streams_, queues_);
    }
    [[nodiscard]] std::unique_ptr<Transport> open_transport(Communicator& communicator) override {
        const TransportStreams streams{streams_.of(Lane::forward), streams_.of(Lane::backward),
                                       streams_.of(Lane::collective)};
        if (options_.transport == CudaTransport::copies) {
            return device_copies::make_transport(communicator, streams);
        }
        if (communicator.size() > 1) leave_to_nccl();
        return nccl::make_transport(communicator, streams);
    }
    [[nodiscard]] std::unique_ptr<TileLink> open_tile_link(Transport& transport,
                                                           const WaitOptions& wait,
                                                           const TileLinkOptions& options,
                                                           Axis axis) override {
        std::unique_ptr<TileLink> link = make_stream_tile_link(
            transport, wait, streams_.of(Lane::compute), options, tile_link::channel_of(axis));
        ++links_;
        if (options_.transport == CudaTransport::nccl) leave_to_nccl();
        return link;
    }

private:
    /// Makes the GPU current in the calling thread.
    static int select(int ordinal) {
        const int count = cuda_device_count();
        if (count == 0) {
            throw DeviceError(
                "--device cuda: no GPU was found; check nvidia-smi and CUDA_VISIBLE_DEVICES, or "
                "use --device host");
        }
        if (ordinal >= count) {
            throw DeviceError("--device cuda: GPU " + std::to_string(ordinal) +
                              " is needed, but only " + std::to_string(count) +
                              " can be seen; start at most one rank per GPU, or let ranks share "
                              "one with --transport threads");
        }
        check(cudaSetDevice(ordinal), "cudaSetDevice");
        return ordinal;
    }
    [[nodiscard]] kernels::cuda::Engine::Queue queue(Lane lane, const DeviceMemory& workspace) {
        return {streams_.of(lane), workspace.bytes()};
    }
    void use_choices(const std::string& gpu) {
        try {
            kernels::cuda::use_choices(
                engine_, kernels::cuda::ProductChoices::parse(options_.product_choices, gpu));
        } catch (const InputFileError& error) {
            throw InputFileError(std::string("--product-choices: ") + error.what() +
                                 "; time the products again");
        }
    }
    void leave_to_nccl() {
        if (options_.left_multiprocessors) return;
        engine_.leave_multiprocessors(nccl_multiprocessors(links_));
    }
    void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
        const cudaStream_t stream = streams_.of(Lane::compute);
        check(cudaSetDevice(ordinal_), "cudaSetDevice");  // a saving thread begins with GPU 0
        check(cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
        synchronize(stream);
    }

    CudaDeviceOptions options_;
    int ordinal_;
    std::string name_;
    std::atomic<uint64_t> allocated_{0}, most_allocated_{0};  ///< bytes; a saving thread reads them
    LaneStreams streams_;
    DeviceMemory pass_workspace_ =
        allocate(kernels::cuda::kPassWorkspaceBytes, "the workspace of the passes");
    DeviceMemory combine_workspace_ =
        allocate(kernels::cuda::kCombineWorkspaceBytes, "the workspace of the combines");
    std::array<kernels::cuda::Engine::Queue, kLanes> queues_;
    kernels::cuda::Engine engine_;
    int links_ = 0;  ///< opened tile links
};

}  // namespace

}  // namespace cuda

void prepare_cuda(bool nccl_joins_ranks) {
    static std::once_flag once;
    std::call_once(once, [=] {
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);  // the maximum
        if (nccl_joins_ranks) setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
    });
}

int cuda_device_count() {
    prepare_cuda(/*nccl_joins_ranks=*/false);
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return count;
}

int nccl_multiprocessors(int links) {
    return nccl::Options{}.most_ctas(links);
}

std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options) {
    prepare_cuda(options.transport == CudaTransport::nccl);
    return std::make_unique<cuda::CudaDevice>(options);
}

cudaStream_t cuda_stream(Context& ctx) {
    return ctx.cuda().stream();
}

}  // namespace vocabpipe
