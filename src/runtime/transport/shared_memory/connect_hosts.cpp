// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/transport/shared_memory/transport.hpp"

#include "src/runtime/gathered.hpp"
#include "vocabpipe/error.hpp"

#include <unistd.h>

#include <array>
#include <exception>

namespace vocabpipe::shared_memory {

namespace {

std::string host_name() {
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    return name.data();
}

/// Error text of `work`; empty: none.
template <typename Work>
std::string error_of(Work&& work) {
    try {
        work();
    } catch (const std::exception& error) {
        return error.what();
    }
    return {};
}

}  // namespace

Communicator connect_hosts(Communicator control, const HostOptions& options) {
    const int rank = control.rank();
    const std::string name_here = options.host.empty() ? host_name() : options.host;
    const std::vector<std::string> hosts =
        gathered_texts(control, name_here + "\n" + std::to_string(options.node));
    const std::string& host = hosts[static_cast<size_t>(rank)];
    Neighbours neighbours{.rank = rank, .place = {}};
    int ranks = 0;
    int first = -1;
    for (int other = 0; other < control.size(); ++other) {
        const bool here = hosts[static_cast<size_t>(other)] == host;
        if (here && first < 0) first = other;
        neighbours.place.push_back(here ? ranks++ : -1);
    }

    // The first rank of each host makes the segment, the others open it. Every rank takes part in
    // every step, even after an error.
    std::shared_ptr<Segment> segment;
    std::string error;
    std::string name;
    if (ranks > 1 && rank == first) {
        error = error_of([&] {
            segment = Segment::create(SegmentLayout(ranks, options.ring_bytes));
            name = segment->name();
        });
    }
    const std::string created = gathered_texts(control, name)[static_cast<size_t>(first)];
    if (ranks > 1 && rank != first && !created.empty()) {
        error = error_of(
            [&] { segment = Segment::open(created, SegmentLayout(ranks, options.ring_bytes)); });
    }
    const std::vector<std::string> errors = gathered_texts(control, error);
    if (segment) segment->remove();  // all ranks have opened it, or failed to

    bool fails_here = false;
    bool noted = false;
    for (int other = 0; other < control.size(); ++other) {
        const std::string& what = errors[static_cast<size_t>(other)];
        if (what.empty()) continue;
        if (hosts[static_cast<size_t>(other)] == host) fails_here = true;
        if (!noted && other == rank && options.note) {
            options.note("no shared memory between the ranks of " + name_here + ": " + what +
                         "; they use MPI; make room in /dev/shm, or set --transport-on-host mpi");
        }
        noted = true;
    }
    if (ranks < 2 || fails_here) return control;
    const WaitOptions wait = control.wait_options();
    return {make_transport(std::move(segment), std::move(neighbours), std::move(control)), wait};
}

}  // namespace vocabpipe::shared_memory
