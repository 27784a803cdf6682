// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/transport/threads/transport.hpp"

#include "src/runtime/transport/reused_slots.hpp"
#include "vocabpipe/error.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

namespace vocabpipe::threads {

namespace {

/// One end of a message that waits for the other end. Rendezvous: the rank that comes second copies
/// the bytes, once.
struct Post {
    const std::byte* source = nullptr;
    std::byte* target = nullptr;
    size_t bytes = 0;
    std::atomic<bool> done{false};
};

struct Mailbox {
    std::mutex mutex;
    std::deque<Post*> sends;
    std::deque<Post*> receives;
};

}  // namespace

class Hub {
public:
    explicit Hub(int ranks)
        : ranks_(ranks), boxes_(static_cast<size_t>(ranks * ranks * kChannels)) {}

    [[nodiscard]] int ranks() const { return ranks_; }
    Mailbox& box(int source, int destination, Channel channel) {
        return boxes_[static_cast<size_t>((source * ranks_ + destination) * kChannels +
                                          static_cast<int>(channel))];
    }
    void abort(const std::string& reason) noexcept {
        const std::lock_guard lock(mutex_);
        if (aborted_.load()) return;
        reason_ = reason;
        aborted_.store(true);
    }
    void throw_if_aborted() {
        if (!aborted_.load(std::memory_order_relaxed)) return;
        const std::lock_guard lock(mutex_);
        throw CommunicationError(reason_);
    }

    std::shared_ptr<void> share(uint64_t key, const std::function<std::shared_ptr<void>()>& make) {
        const std::lock_guard lock(mutex_);
        std::shared_ptr<void> object = shared_[key].lock();
        if (!object) shared_[key] = object = make();
        return object;
    }

private:
    int ranks_;
    std::vector<Mailbox> boxes_;
    std::map<uint64_t, std::weak_ptr<void>> shared_;
    std::mutex mutex_;
    std::atomic<bool> aborted_{false};
    std::string reason_;
};

namespace {

class ThreadsTransport final : public MessageTransport {
public:
    ThreadsTransport(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

    ~ThreadsTransport() override {
        cancel();  // after a failure a peer may still hold pointers to posts of this rank
    }

    void cancel() noexcept override {
        for (int peer = 0; peer < hub_->ranks(); ++peer) {
            for (int channel = 0; channel < kChannels; ++channel) {
                withdraw(hub_->box(rank_, peer, static_cast<Channel>(channel)), true);
                withdraw(hub_->box(peer, rank_, static_cast<Channel>(channel)), false);
            }
        }
    }

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return hub_->ranks(); }
    [[nodiscard]] Nearness nearness(int) const override { return Nearness::process; }
    [[nodiscard]] std::shared_ptr<void> share_in_process(
        uint64_t key, const std::function<std::shared_ptr<void>()>& make) override {
        return hub_->share(key, make);
    }
    void check_health() override { hub_->throw_if_aborted(); }
    void abort(const std::string& reason) noexcept override { hub_->abort(reason); }

protected:
    Request post_send(int peer, Channel channel, std::span<const std::byte> bytes) override {
        const Request request = new_post();
        Post& post = posts_[request];
        post.source = bytes.data();
        post.bytes = bytes.size();
        Mailbox& box = hub_->box(rank_, peer, channel);
        const std::lock_guard lock(box.mutex);
        if (box.receives.empty()) {
            box.sends.push_back(&post);
        } else {
            Post* other = box.receives.front();
            box.receives.pop_front();
            deliver(post, *other);
        }
        return request;
    }

    Request post_receive(int peer, Channel channel, std::span<std::byte> bytes) override {
        const Request request = new_post();
        Post& post = posts_[request];
        post.target = bytes.data();
        post.bytes = bytes.size();
        Mailbox& box = hub_->box(peer, rank_, channel);
        const std::lock_guard lock(box.mutex);
        if (box.sends.empty()) {
            box.receives.push_back(&post);
        } else {
            Post* other = box.sends.front();
            box.sends.pop_front();
            deliver(*other, post);
        }
        return request;
    }

    bool test_request(Request request) override {
        if (!posts_[request].done.load(std::memory_order_acquire)) {
            hub_->throw_if_aborted();
            return false;
        }
        posts_.give_back(request);
        return true;
    }

private:
    void deliver(Post& send, Post& receive) {
        if (send.bytes != receive.bytes) {
            throw CommunicationError("rank " + std::to_string(rank_) + ": received a message of " +
                                     std::to_string(send.bytes) + " bytes, expected " +
                                     std::to_string(receive.bytes));
        }
        std::memcpy(receive.target, send.source, send.bytes);
        send.done.store(true, std::memory_order_release);
        receive.done.store(true, std::memory_order_release);
    }

    Request new_post() {
        const Request request = posts_.take();
        posts_[request].done.store(false, std::memory_order_relaxed);
        return request;
    }

    void withdraw(Mailbox& box, bool sends) {
        const std::lock_guard lock(box.mutex);
        (sends ? box.sends : box.receives).clear();
    }

    std::shared_ptr<Hub> hub_;
    int rank_;
    ReusedSlots<Post> posts_;  ///< peers hold pointers
};

}  // namespace

std::shared_ptr<Hub> make_hub(int ranks) {
    return std::make_shared<Hub>(ranks);
}

void abort(Hub& hub, const std::string& reason) noexcept {
    hub.abort(reason);
}

std::unique_ptr<Transport> make_transport(std::shared_ptr<Hub> hub, int rank) {
    return std::make_unique<ThreadsTransport>(std::move(hub), rank);
}

}  // namespace vocabpipe::threads
