// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/link_transport.hpp"
#include "src/runtime/transport/nccl/communicator.hpp"
#include "src/runtime/transport/transport_streams.hpp"
#include "vocabpipe/world.hpp"

#include <cuda_runtime.h>

#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace vocabpipe::nccl {

struct Options {
    /// Most thread blocks of one launch. Few, because each takes an SM from the pass that runs at
    /// the same time, and a boundary has a whole pass to travel. Steps of tile links use as many,
    /// because a team is neighbours. Chosen, not measured yet.
    int message_ctas = 4;
    /// The same for collectives: more, because passes of all ranks wait for them.
    int collective_ctas = 8;

    /// Most thread blocks at the same time: each of the three streams, and the stream of each tile
    /// link, runs one launch after the other, even of several communicators.
    [[nodiscard]] constexpr int most_ctas(int links) const {
        return (2 + links) * message_ctas + collective_ctas;
    }
};

/// Transfers as stream-ordered NCCL operations on device memory.
///
/// start() enqueues on the channel's stream, after all that the caller made that stream wait for;
/// test() is true as soon as the operation IS ENQUEUED: record an event then to learn of its end.
/// The spans of a transfer must stay valid until the stream has passed it. Everything is sent as
/// bytes: the program makes the sizes of both ends equal, and NCCL moves all types alike.
///
/// NCCL requires the same order of launches on all ranks, over all communicators, from one thread.
/// So transfers are launched strictly in the order of start() calls (the program's global order),
/// one after the other: while NCCL reports one as in progress, later ones wait here.
///
/// Communicators: one of all ranks, for collectives of all; one each for forward and backward
/// messages, so that neither waits for the other's end (it does wait for its start:
/// benchmarks/results/gpu-notes.md);
/// one per smaller group, made by prepare(); one per team of a tile link, made by join(), so that
/// steps of a link wait for no other communication's end.
class NcclTransport final : public Transport, public LinkTransport {
public:
    /// See make_transport().
    NcclTransport(Communicator& control, const TransportStreams& streams, const Options& options);
    /// Without an error, flushes and closes (collective, with the deadline of `control`); else
    /// aborts and waits for no other rank.
    ~NcclTransport() override;
    NcclTransport(const NcclTransport&) = delete;
    NcclTransport& operator=(const NcclTransport&) = delete;

    [[nodiscard]] int rank() const override { return control_.rank(); }
    [[nodiscard]] int size() const override { return control_.size(); }
    /// Makes the communicators of the routes' groups and sends one byte over every connection:
    /// NCCL connects on first use, which takes long and would happen within a step. No transfer may
    /// be open. Collective.
    void prepare(const std::vector<Route>& routes) override;
    [[nodiscard]] Ticket start(const Transfer& transfer) override;
    [[nodiscard]] bool test(Ticket ticket) override;
    void check_health() override;
    void cancel() noexcept override;
    void abort(const std::string& reason) noexcept override;

    // link_steps.cpp
    [[nodiscard]] int join(const LinkTeam& team) override;
    [[nodiscard]] Ticket start_step(int team, const LinkStep& step) override;
    [[nodiscard]] bool test_step(Ticket ticket) override { return test(ticket); }

private:
    /// A transfer that waits for its turn, with copies of the spans given to start().
    struct Queued {
        Transfer transfer;
        std::vector<int> ranks;
        std::vector<int64_t> block_begin, block_end;
        int team = -1;       ///< of a step; -1: a transfer
        LinkStep step = {};  ///< instead of the transfer
    };
    struct DeviceFree {
        void operator()(std::byte* memory) const { (void)cudaFree(memory); }
    };
    struct GroupCommunicator {
        std::vector<int> ranks;
        std::unique_ptr<NcclCommunicator> communicator;
    };

    struct Team {
        LinkTeam team;
        std::unique_ptr<NcclCommunicator> communicator;  ///< null: this rank has no team
    };

    [[nodiscard]] std::unique_ptr<NcclCommunicator> split(bool member,
                                                          const CommunicatorOptions& options);
    [[nodiscard]] std::unique_ptr<NcclCommunicator> split(const NcclCommunicator::Part& place,
                                                          const CommunicatorOptions& options);
    void connect(const Route& route);
    void connect_team(int team);
    [[nodiscard]] NcclCommunicator& communicator_of(Channel channel, std::span<const int> ranks,
                                                    bool message);
    [[nodiscard]] size_t scratch_bytes() const { return 8 * static_cast<size_t>(size()); }
    void launch(const Transfer& transfer);
    void launch_blocks(const Transfer& transfer, NcclCommunicator& communicator);
    void launch_step(int team, const LinkStep& step);
    void end_launch();
    /// Launches waiting transfers, as far as NCCL allows.
    void pump();
    /// Polls `done` until it is true; throws CommunicationError after the deadline or a failure.
    void wait_until(const std::string& what, const std::function<bool()>& done);
    void wait_for_streams(const std::string& what);
    void wait_for_stream(cudaStream_t stream, const std::string& what);
    void close();
    void for_each_communicator(const std::function<void(NcclCommunicator&)>& work);

    Communicator& control_;
    TransportStreams streams_;
    Options options_;
    int exceptions_ = 0;  ///< in flight at construction
    std::unique_ptr<NcclCommunicator> everyone_, forward_, backward_;
    std::vector<GroupCommunicator> groups_;  ///< all groups, even those without this rank
    std::vector<Team> teams_;
    std::set<Route> connected_;
    std::unique_ptr<std::byte, DeviceFree>
        scratch_;  ///< for connect(); scratch_bytes() per channel
    std::deque<Queued> queue_;
    NcclCommunicator* in_progress_ = nullptr;  ///< NCCL has not enqueued its last launch yet
    cudaEvent_t step_done_ = nullptr;          ///< recorded after that launch; null: not a step
    cudaStream_t step_stream_ = nullptr;       ///< of that step
    Ticket started_ = 0;
    Ticket launched_ = 0;
    bool dead_ = false;
};

/// A transport between ranks with one GPU each, processes or threads. The streams are of the
/// calling thread's current GPU, and only this thread uses the transport. `control` carries NCCL's
/// id, reports failed ranks and gives deadlines; it must outlive the transport. Collective. Throws
/// CommunicationError if NCCL cannot connect the ranks.
[[nodiscard]] std::unique_ptr<Transport> make_transport(Communicator& control,
                                                        const TransportStreams& streams,
                                                        const Options& options = {});

}  // namespace vocabpipe::nccl
