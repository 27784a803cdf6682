// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/transport/device_copies/transport.hpp"

#include "src/runtime/device/cuda/handles.hpp"
#include "src/runtime/transport/link_transport.hpp"
#include "src/runtime/transport/message_transport.hpp"
#include "vocabpipe/error.hpp"

#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

namespace vocabpipe::device_copies {

namespace {

using cuda::check;
using cuda::Event;
using cuda::make_event;
using cuda::Timing;

/// A message from its send to its copy. Shared by both ends, because either may fail first.
struct Message {
    std::span<const std::byte> bytes;
    /// Event: the sender's stream has written the bytes. It is own_ready or, for a step, the link's
    /// event, which lives until the copy is enqueued or the message withdrawn.
    cudaEvent_t ready = nullptr;
    Event own_ready;

    /// Guards the members below; held while a copy is being enqueued.
    std::mutex mutex;
    bool withdrawn = false;  ///< the sender failed: do not read its bytes
    /// Event: the receiver's stream has read the bytes. Null until the copy is enqueued; made by
    /// the receiver, because only streams of an event's own GPU can record it.
    Event copied;
};

/// Shared by the ranks of one world: open messages by (source, destination, channel).
class Hub {
public:
    using Key = std::tuple<int, int, Channel>;
    void post(const Key& key, std::shared_ptr<Message> message) {
        const std::lock_guard lock(mutex_);
        boxes_[key].push_back(std::move(message));
    }
    [[nodiscard]] std::shared_ptr<Message> take(const Key& key) {
        const std::lock_guard lock(mutex_);
        std::deque<std::shared_ptr<Message>>& box = boxes_[key];
        if (box.empty()) return {};
        std::shared_ptr<Message> first = std::move(box.front());
        box.pop_front();
        return first;
    }

private:
    std::mutex mutex_;
    std::map<Key, std::deque<std::shared_ptr<Message>>> boxes_;
};

class DeviceCopies final : public MessageTransport, public LinkTransport {
public:
    DeviceCopies(Communicator& control, const TransportStreams& streams, std::shared_ptr<Hub> hub)
        : control_(control), streams_(streams), hub_(std::move(hub)) {}

    [[nodiscard]] int rank() const override { return control_.rank(); }
    [[nodiscard]] int size() const override { return control_.size(); }
    void check_health() override { control_.transport().check_health(); }
    /// Afterwards no stream reads a message of this rank. Waits for enqueued copies, which end
    /// because they wait only for recorded events; the others never start.
    void cancel() noexcept override {
        for (auto& [request, open] : requests_) {
            if (!open.sent) continue;
            const std::lock_guard lock(open.sent->mutex);
            open.sent->withdrawn = true;
            if (open.sent->copied) (void)cudaEventSynchronize(open.sent->copied.get());
        }
        requests_.clear();
        waiting_.clear();
        steps_.clear();
    }
    void abort(const std::string& reason) noexcept override { control_.transport().abort(reason); }

    [[nodiscard]] int join(const LinkTeam& team) override {
        teams_.push_back(team);
        return static_cast<int>(teams_.size()) - 1;
    }
    [[nodiscard]] Ticket start_step(int number, const LinkStep& step) override {
        const LinkTeam& team = teams_[static_cast<size_t>(number)];
        const auto rank_of = [&](int member) { return team.ranks[static_cast<size_t>(member)]; };
        Step open{.stream = team.stream, .done = step.done};
        if (!step.send.empty()) {
            auto message = std::make_shared<Message>();
            message->bytes = step.send;
            message->ready = step.ready;
            open.requests.push_back(
                send_message(rank_of(step.to), team.channel, team.stream, std::move(message)));
        }
        if (!step.receive.empty()) {
            open.requests.push_back(
                await_message(rank_of(step.from), team.channel, team.stream, step.receive));
        }
        steps_.emplace(next_step_, std::move(open));
        return next_step_++;
    }
    [[nodiscard]] bool test_step(Ticket ticket) override {
        Step& step = steps_.at(ticket);
        while (!step.requests.empty()) {
            if (!test_request(step.requests.back())) return false;
            step.requests.pop_back();
        }
        check(cudaEventRecord(step.done, step.stream), "cudaEventRecord");
        steps_.erase(ticket);
        return true;
    }

protected:
    Request post_send(int peer, Channel channel, std::span<const std::byte> bytes) override {
        auto message = std::make_shared<Message>();
        message->bytes = bytes;
        message->own_ready = make_event(Timing::no);
        message->ready = message->own_ready.get();
        check(cudaEventRecord(message->ready, streams_.of(channel)), "cudaEventRecord");
        return send_message(peer, channel, streams_.of(channel), std::move(message));
    }

    Request post_receive(int peer, Channel channel, std::span<std::byte> bytes) override {
        return await_message(peer, channel, streams_.of(channel), bytes);
    }

    void copy_own(Channel channel, std::span<const std::byte> from,
                  std::span<std::byte> to) override {
        if (from.empty() || from.data() == to.data()) return;
        enqueue_copy(streams_.of(channel), from, to);
    }

    [[nodiscard]] bool memory_is_of_host() const override { return false; }

    /// True once enqueued on the channel's stream.
    bool test_request(Request request) override {
        const bool enqueued =
            requests_.at(request).sent ? test_send(requests_.at(request)) : test_receive(request);
        if (!enqueued) {
            check_health();
            return false;
        }
        requests_.erase(request);
        return true;
    }

private:
    struct Open {
        Channel channel = Channel::collective;
        cudaStream_t stream = nullptr;
        int peer = -1;
        std::shared_ptr<Message> sent;  ///< null: a receive
        std::span<std::byte> target;
    };

    struct Step {
        cudaStream_t stream = nullptr;
        cudaEvent_t done = nullptr;
        std::vector<Request> requests = {};  ///< not enqueued yet
    };

    Request send_message(int peer, Channel channel, cudaStream_t stream,
                         std::shared_ptr<Message> message) {
        hub_->post({rank(), peer, channel}, message);
        return add(
            {.channel = channel, .stream = stream, .peer = peer, .sent = std::move(message)});
    }
    Request await_message(int peer, Channel channel, cudaStream_t stream,
                          std::span<std::byte> bytes) {
        const Request request =
            add({.channel = channel, .stream = stream, .peer = peer, .target = bytes});
        waiting_[{peer, channel}].push_back(request);
        return request;
    }

    Request add(Open open) {
        requests_.emplace(next_, std::move(open));
        return next_++;
    }

    bool test_send(const Open& open) {
        const std::lock_guard lock(open.sent->mutex);
        if (!open.sent->copied) return false;
        // Later work on this stream may overwrite the bytes.
        check(cudaStreamWaitEvent(open.stream, open.sent->copied.get(), 0), "cudaStreamWaitEvent");
        return true;
    }

    /// Matches messages of a pair and channel in the order of the receives.
    bool test_receive(Request request) {
        const Open& open = requests_.at(request);
        std::deque<Request>& order = waiting_[{open.peer, open.channel}];
        if (order.front() != request) return false;
        const std::shared_ptr<Message> message = hub_->take({open.peer, rank(), open.channel});
        if (!message) return false;
        if (message->bytes.size() != open.target.size()) {
            throw CommunicationError("rank " + std::to_string(rank()) + ": received a message of " +
                                     std::to_string(message->bytes.size()) + " bytes, expected " +
                                     std::to_string(open.target.size()));
        }
        const std::lock_guard lock(message->mutex);
        if (message->withdrawn) return false;  // its sender reports why
        const cudaStream_t stream = open.stream;
        Event copied = make_event(Timing::no);
        check(cudaStreamWaitEvent(stream, message->ready, 0), "cudaStreamWaitEvent");
        enqueue_copy(stream, message->bytes, open.target);
        const cudaError_t recorded = cudaEventRecord(copied.get(), stream);
        // Without an event the sender cannot wait for the copy, so it must end before the lock is
        // released.
        if (recorded != cudaSuccess) (void)cudaStreamSynchronize(stream);
        check(recorded, "cudaEventRecord");
        message->copied = std::move(copied);
        order.pop_front();
        return true;
    }

    void enqueue_copy(cudaStream_t stream, std::span<const std::byte> from,
                      std::span<std::byte> to) {
        check(cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyDefault, stream),
              "cudaMemcpyAsync");
    }

    Communicator& control_;
    TransportStreams streams_;
    std::shared_ptr<Hub> hub_;
    std::map<Request, Open> requests_;
    std::map<std::pair<int, Channel>, std::deque<Request>> waiting_;  ///< receives, in order
    Request next_ = 0;
    std::vector<LinkTeam> teams_;
    std::map<Ticket, Step> steps_;
    Ticket next_step_ = 0;
};

}  // namespace

std::unique_ptr<Transport> make_transport(Communicator& control, const TransportStreams& streams) {
    // Threads of one process: rank 0 makes the hub and sends its address.
    std::shared_ptr<Hub> hub = control.rank() == 0 ? std::make_shared<Hub>() : nullptr;
    const std::shared_ptr<Hub>* const mine = &hub;
    const auto all = control.all_gather(std::as_bytes(std::span(&mine, 1)));
    const std::shared_ptr<Hub>* shared = nullptr;
    std::memcpy(&shared, all.front().data(), sizeof shared);
    if (control.rank() != 0) hub = *shared;
    control.barrier();  // rank 0 keeps its hub until all have copied the pointer
    return std::make_unique<DeviceCopies>(control, streams, std::move(hub));
}

}  // namespace vocabpipe::device_copies
