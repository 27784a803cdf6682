// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/device/cuda/handles.hpp"
#include "src/runtime/tile_link/streams.hpp"

#include <string>
#include <vector>

namespace vocabpipe {

class StreamExchange;

/// Events without times, made once and reused in every operation.
class EventPool {
public:
    [[nodiscard]] cudaEvent_t operator[](size_t i) {
        while (events_.size() <= i) events_.push_back(cuda::make_event(cuda::Timing::no));
        return events_[i].get();
    }

private:
    std::vector<cuda::Event> events_;
};

/// State shared by the operations of one link on a GPU.
struct StreamTeam {
    Transport& transport;
    LinkTransport& steps;
    const WaitOptions& wait;
    cudaStream_t pass = nullptr;  ///< stream of the passes
    TileLinkOptions options;
    Channel channel = Channel::tensor;
    int self = 0;                                            ///< this rank's number in the team
    int number = 0;                                          ///< number of the team in `steps`
    cuda::Stream stream{};                                   ///< the link's own
    cuda::Event begin = cuda::make_event(cuda::Timing::no);  ///< memory of the operation is free
    cuda::Event own = cuda::make_event(cuda::Timing::no);    ///< the own part is copied
    EventPool ready{}, done{};          ///< of releases and of steps of an operation
    StreamExchange* current = nullptr;  ///< operation that has not finished; null: none
    bool broken = false;                ///< an operation was destroyed before it finished
};

/// One all-to-all of a link on a GPU, as steps in the order of streams.hpp. A step is given to the
/// transport as soon as its own piece and all earlier ones have been released. It counts as
/// enqueued when the transport reports it, which may need the hosts of its peers, never their GPUs.
class StreamExchange final : public TileLink::Exchange {
public:
    /// Parts as TileLink::all_to_all() has checked them.
    StreamExchange(StreamTeam& team, std::string name, std::span<const TileLink::Outgoing> send,
                   std::span<const TileLink::Incoming> receive, TileLink::Order order);
    ~StreamExchange() override;
    StreamExchange(const StreamExchange&) = delete;
    StreamExchange& operator=(const StreamExchange&) = delete;

    void release(int member, int pieces) override;
    [[nodiscard]] int wait(int member, int pieces) override;
    [[nodiscard]] bool test(int member, int pieces) override;
    void finish() override;
    /// Hands over steps and tests them; returns whether a step has been enqueued.
    bool progress();
    [[nodiscard]] const std::string& name() const { return name_; }

private:
    struct Outbox {
        TileLink::Outgoing part;
        int released = 0;
        std::vector<cudaEvent_t> ready;  ///< of released pieces
        [[nodiscard]] int pieces() const { return static_cast<int>(part.ends.size()); }
    };
    struct Inbox {
        TileLink::Incoming part;
        std::vector<size_t> steps;  ///< [piece] step that brings it; not for the own part
        [[nodiscard]] int pieces() const { return static_cast<int>(part.ends.size()); }
    };
    struct Step {
        int to = 0, from = 0, piece = 0;
        Ticket ticket = 0;
    };

    void copy_own(int pieces);
    void hand_over();
    void await(size_t steps);
    void cancel() noexcept;
    [[nodiscard]] Outbox& to(int member) { return out_.at(static_cast<size_t>(member)); }
    [[nodiscard]] Inbox& from(int member) { return in_.at(static_cast<size_t>(member)); }
    [[nodiscard]] std::string awaited() const;

    StreamTeam& team_;
    std::string name_;
    std::vector<Outbox> out_;
    std::vector<Inbox> in_;
    std::vector<Step> steps_;
    size_t handed_over_ = 0, enqueued_ = 0;  ///< steps
    size_t awaited_ = 0;                     ///< steps for which the pass's stream waits
    size_t releases_ = 0;                    ///< events of team.ready in use
    bool finished_ = false;
};

}  // namespace vocabpipe
