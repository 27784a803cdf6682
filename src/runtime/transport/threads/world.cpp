// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/world.hpp"
#include "src/runtime/transport/threads/transport.hpp"
#include "vocabpipe/error.hpp"

#include <exception>
#include <mutex>
#include <thread>

namespace vocabpipe::threads {

namespace {

class ThreadsWorld final : public World::Implementation {
public:
    ThreadsWorld(int ranks, WaitOptions wait) : ranks_(ranks), wait_(std::move(wait)) {}

    [[nodiscard]] int size() const override { return ranks_; }
    void abort(int) noexcept override {}

    void run(const std::function<void(Communicator&)>& body) override {
        const std::shared_ptr<Hub> hub = make_hub(ranks_);
        std::mutex mutex;
        std::exception_ptr first;
        // Transports live until all ranks have ended: a late peer may still copy from their posts.
        std::vector<Communicator> ends;
        for (int rank = 0; rank < ranks_; ++rank) {
            ends.emplace_back(make_transport(hub, rank), wait_);
        }
        std::vector<std::jthread> ranks;
        const auto start = [&](int rank) {
            ranks.emplace_back([&, rank] {
                const auto failed = [&](const std::string& reason) {
                    {
                        const std::lock_guard lock(mutex);
                        if (!first) first = std::current_exception();
                    }
                    threads::abort(*hub, "rank " + std::to_string(rank) + " failed: " + reason);
                };
                try {
                    body(ends[static_cast<size_t>(rank)]);
                } catch (const std::exception& error) {
                    failed(error.what());
                } catch (...) {
                    failed("unknown exception");
                }
            });
        };
        try {
            for (int rank = 0; rank < ranks_; ++rank) start(rank);
        } catch (const std::exception& error) {  // running ranks must not wait
            const std::string reason =
                "--ranks " + std::to_string(ranks_) + ": cannot start the thread of rank " +
                std::to_string(ranks.size()) + ": " + error.what() + "; use fewer ranks";
            const std::lock_guard lock(mutex);
            first = std::make_exception_ptr(Error(ExitCode::failed, reason));
            threads::abort(*hub, reason);
        }
        ranks.clear();  // joins
        if (first) std::rethrow_exception(first);
    }

private:
    int ranks_;
    WaitOptions wait_;
};

}  // namespace

std::unique_ptr<World::Implementation> make_world(int ranks, WaitOptions wait) {
    return std::make_unique<ThreadsWorld>(ranks, std::move(wait));
}

}  // namespace vocabpipe::threads
