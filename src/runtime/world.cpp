// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/world.hpp"

#include "vocabpipe/error.hpp"

namespace vocabpipe {

World::World(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}
World::World(World&&) noexcept = default;
World& World::operator=(World&&) noexcept = default;
World::~World() = default;

namespace {
/// Mailboxes grow with the square: 256 ranks take half a GiB of them.
constexpr int kMostThreads = 256;
}  // namespace

World World::threads(int ranks, WaitOptions wait) {
    if (ranks < 1) {
        throw UsageError("--ranks " + std::to_string(ranks) + ": a world needs at least 1 rank");
    }
    if (ranks > kMostThreads) {
        throw UsageError("--ranks " + std::to_string(ranks) + ": a world of threads has at most " +
                         std::to_string(kMostThreads) + " ranks; use mpirun for more");
    }
    return World(threads::make_world(ranks, std::move(wait)));
}

World World::mpi(WaitOptions wait) {
#ifdef VOCABPIPE_WITH_MPI
    return World(mpi::make_world(std::move(wait)));
#else
    (void)wait;
    throw UsageError(
        "--transport mpi: this build has no MPI; configure with "
        "-DVOCABPIPE_ENABLE_MPI=ON or use --transport threads");
#endif
}

int World::size() const {
    return implementation_->size();
}
void World::run(const std::function<void(Communicator&)>& body) {
    implementation_->run(body);
}
void World::abort(int exit_code) noexcept {
    implementation_->abort(exit_code);
}

}  // namespace vocabpipe
