// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/transport/shared_memory/transport.hpp"

#include "src/runtime/transport/reused_slots.hpp"
#include "src/runtime/wait.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

namespace vocabpipe::shared_memory {

namespace {

/// Time that a rank waits for the other end after moving part of a message: several times that of a
/// chunk of a ring.
constexpr int64_t kPatienceNs = 5'000;

class SharedMemoryTransport final : public MessageTransport {
public:
    SharedMemoryTransport(std::shared_ptr<Segment> segment, Neighbours neighbours,
                          std::optional<Communicator> others)
        : segment_(std::move(segment)),
          rank_(neighbours.rank),
          control_(std::move(others)),
          others_(control_ ? &control_->transport() : nullptr) {
        const int self = neighbours.place[static_cast<size_t>(rank_)];
        peers_.resize(neighbours.place.size());
        for (size_t peer = 0; peer < peers_.size(); ++peer) {
            peers_[peer].to = {rank_, static_cast<int>(peer)};
            peers_[peer].from = {static_cast<int>(peer), rank_};
            const int place = neighbours.place[peer];
            if (place < 0 || place == self) continue;
            for (int channel = 1; channel < kChannels; ++channel) {
                const auto at = static_cast<Channel>(channel);
                peers_[peer].out.emplace_back(RingWriter(segment_->counters(self, place, at),
                                                         segment_->ring(self, place, at)));
                peers_[peer].in.emplace_back(RingReader(segment_->counters(place, self, at),
                                                        segment_->ring(place, self, at)),
                                             static_cast<int>(peer), at);
            }
        }
    }

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return static_cast<int>(peers_.size()); }
    [[nodiscard]] Nearness nearness(int peer) const override {
        const bool here = peer == rank_ || !peers_[static_cast<size_t>(peer)].out.empty();
        return here ? Nearness::host : Nearness::far;
    }
    void prepare(const std::vector<Route>& routes) override {
        if (others_ != nullptr) others_->prepare(routes);
    }
    void check_health() override { segment_->throw_if_aborted(); }
    void abort(const std::string& reason) noexcept override {
        segment_->abort(reason);
        if (others_ != nullptr) others_->abort(reason);
    }
    void cancel() noexcept override {
        for (Outbox* const box : sending_) box->posts.clear();
        for (Inbox* const box : receiving_) box->posts.clear();
        sending_.clear();
        receiving_.clear();
        far_.clear();
        if (others_ != nullptr) others_->cancel();
    }

protected:
    Request post_send(int peer, Channel channel, std::span<const std::byte> bytes) override {
        const Request request = requests_.take_new();
        Peer& to = peers_[static_cast<size_t>(peer)];
        if (to.out.empty()) {
            start_far(request,
                      {.what = Do::send, .channel = channel, .ranks = to.to, .send = bytes});
            return request;
        }
        Outbox& box = to.out[static_cast<size_t>(channel) - 1];
        box.posts.push_back({bytes, 0, request});
        if (box.posts.size() == 1 && !advance(box)) sending_.push_back(&box);
        return request;
    }

    Request post_receive(int peer, Channel channel, std::span<std::byte> bytes) override {
        const Request request = requests_.take_new();
        Peer& from = peers_[static_cast<size_t>(peer)];
        if (from.in.empty()) {
            start_far(
                request,
                {.what = Do::receive, .channel = channel, .ranks = from.from, .receive = bytes});
            return request;
        }
        Inbox& box = from.in[static_cast<size_t>(channel) - 1];
        box.posts.push_back({bytes, 0, request});
        if (box.posts.size() == 1 && !advance(box)) receiving_.push_back(&box);
        return request;
    }

    bool test_request(Request request) override {
        if (!requests_[request].done) {
            progress(request);
            if (!requests_[request].done) {
                segment_->throw_if_aborted();
                return false;
            }
        }
        Open& open = requests_[request];
        if (!open.error.empty()) throw CommunicationError(open.error);
        requests_.give_back(request);
        return true;
    }

private:
    template <typename Bytes>
    struct Post {
        Bytes bytes;
        size_t done = 0;
        Request request = 0;
    };
    /// Sends of this rank to one peer on one channel, in order.
    struct Outbox {
        explicit Outbox(RingWriter writer) : ring(writer) {}
        RingWriter ring;
        std::deque<Post<std::span<const std::byte>>> posts;
    };
    /// Receives of this rank from one peer on one channel, in order.
    struct Inbox {
        Inbox(RingReader reader, int source, Channel on)
            : ring(reader), peer(source), channel(on) {}
        RingReader ring;
        int peer;
        Channel channel;
        std::deque<Post<std::span<std::byte>>> posts;
    };
    struct Peer {
        std::vector<Outbox> out;  ///< by channel - 1; empty: reached through the other transport
        std::vector<Inbox> in;
        std::array<int, 2> to{}, from{};  ///< source, destination
    };
    struct Open {
        bool done = false;
        std::string error;
    };

    void start_far(Request request, const Transfer& transfer) {
        far_.emplace_back(request, others_->start(transfer));
    }

    /// Advances all open transfers, not only `wanted`, because the peer of that one may wait for
    /// another. Continues while the other end of a message keeps up, because a waiting rank may
    /// sleep between two calls.
    void progress(Request wanted) {
        int64_t moved_ns = 0;
        while (!requests_[wanted].done) {
            const uint64_t before = moved_;
            advance_all();
            if (moved_ != before) {
                moved_ns = now_ns();
                continue;
            }
            if (moved_ns == 0 || !within_message() || now_ns() - moved_ns > kPatienceNs) return;
        }
    }

    void advance_all() {
        std::erase_if(sending_, [this](Outbox* box) { return advance(*box); });
        std::erase_if(receiving_, [this](Inbox* box) { return advance(*box); });
        std::erase_if(far_, [this](const auto& far) { return test_far(far.first, far.second); });
    }

    [[nodiscard]] bool within_message() const {
        const auto begun = [](const auto* box) { return box->posts.front().done > 0; };
        return std::any_of(sending_.begin(), sending_.end(), begun) ||
               std::any_of(receiving_.begin(), receiving_.end(), begun);
    }

    /// True if nothing is left to send.
    bool advance(Outbox& box) {
        while (!box.posts.empty()) {
            auto& post = box.posts.front();
            const size_t before = post.done;
            const bool whole = box.ring.write(post.bytes, post.done);
            moved_ += post.done - before;
            if (!whole) return false;
            requests_[post.request].done = true;
            box.posts.pop_front();
        }
        return true;
    }

    /// True if nothing is left to receive, or if the message that came has the wrong size.
    bool advance(Inbox& box) {
        while (!box.posts.empty()) {
            auto& post = box.posts.front();
            const std::optional<uint64_t> bytes = box.ring.next();
            if (!bytes) return false;
            if (*bytes != post.bytes.size()) {
                fail(post.request, "rank " + std::to_string(rank_) + ": channel " +
                                       name_of(box.channel) + " from rank " +
                                       std::to_string(box.peer) + ": received a message of " +
                                       std::to_string(*bytes) + " bytes, expected " +
                                       std::to_string(post.bytes.size()));
                return true;
            }
            const size_t before = post.done;
            const bool whole = box.ring.read(post.bytes, post.done);
            moved_ += post.done - before;
            if (!whole) return false;
            requests_[post.request].done = true;
            box.posts.pop_front();
        }
        return true;
    }

    bool test_far(Request request, Ticket ticket) {
        try {
            if (!others_->test(ticket)) return false;
            requests_[request].done = true;
        } catch (const CommunicationError& error) {
            fail(request, error.what());
        }
        return true;
    }

    void fail(Request request, std::string what) {
        requests_[request].done = true;
        requests_[request].error = std::move(what);
    }

    std::shared_ptr<Segment> segment_;
    int rank_;
    std::optional<Communicator> control_;
    Transport* others_;  ///< null: none
    std::vector<Peer> peers_;
    std::vector<Outbox*> sending_;   ///< with open sends
    std::vector<Inbox*> receiving_;  ///< with open receives
    std::vector<std::pair<Request, Ticket>> far_;
    uint64_t moved_ = 0;  ///< bytes moved through all rings
    ReusedSlots<Open> requests_;
};

}  // namespace

std::unique_ptr<Transport> make_transport(std::shared_ptr<Segment> segment, Neighbours neighbours,
                                          std::optional<Communicator> others) {
    return std::make_unique<SharedMemoryTransport>(std::move(segment), std::move(neighbours),
                                                   std::move(others));
}

}  // namespace vocabpipe::shared_memory
