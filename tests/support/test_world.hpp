// SPDX-License-Identifier: Apache-2.0
// The worlds that one source of tests runs on, as its program is compiled: threads, the processes
// of one mpirun (VOCABPIPE_TEST_MPI), and both through shared memory
// (VOCABPIPE_TEST_SHARED_MEMORY).
#pragma once

#include "src/runtime/transport/shared_memory/transport.hpp"
#include "vocabpipe/world.hpp"

#include <exception>
#include <functional>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::testing {

#ifdef VOCABPIPE_TEST_MPI
inline constexpr bool kThreads = false;
#else
inline constexpr bool kThreads = true;
#endif
#ifdef VOCABPIPE_TEST_SHARED_MEMORY
inline constexpr bool kSharedMemory = true;
#else
inline constexpr bool kSharedMemory = false;
#endif

/// run() as World::run(). Threads that use shared memory have one mapping of it, so that
/// ThreadSanitizer sees both ends of a ring; its rings are as small as can be.
class TestWorld {
public:
    /// `ranks`: of threads; under mpirun it is what mpirun started.
    explicit TestWorld(int ranks, WaitOptions wait = {.timeout_seconds = 30})
        : world_(kThreads
                     ? World::threads(ranks, std::move(wait))
                     : World::mpi(std::move(wait), {.shared_memory = kSharedMemory, .note = {}})) {}

    [[nodiscard]] int size() const { return world_.size(); }

    void run(const std::function<void(Communicator&)>& body) {
        if (!kThreads || !kSharedMemory || size() < 2) {
            world_.run(body);
            return;
        }
        const auto segment =
            shared_memory::Segment::create(shared_memory::SegmentLayout(size(), 4096));
        segment->remove();
        std::mutex mutex;
        std::exception_ptr first;
        world_.run([&](Communicator& c) {
            shared_memory::Neighbours neighbours{
                .rank = c.rank(), .place = std::vector<int>(static_cast<size_t>(size()))};
            std::iota(neighbours.place.begin(), neighbours.place.end(), 0);
            Communicator on_host(shared_memory::make_transport(segment, std::move(neighbours)),
                                 c.wait_options());
            const auto failed = [&](const std::string& reason) {
                {
                    const std::lock_guard lock(mutex);
                    if (!first) first = std::current_exception();
                }
                segment->abort("rank " + std::to_string(c.rank()) + " failed: " + reason);
            };
            try {
                body(on_host);
            } catch (const std::exception& error) {
                failed(error.what());
            } catch (...) {
                failed("unknown exception");
            }
        });
        if (first) std::rethrow_exception(first);
    }

private:
    World world_;
};

}  // namespace vocabpipe::testing
