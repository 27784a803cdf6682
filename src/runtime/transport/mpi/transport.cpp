// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/transport/mpi/transport.hpp"

#include "src/runtime/transport/reused_slots.hpp"
#include "vocabpipe/error.hpp"

#include <mpi.h>
#include <array>
#include <exception>

namespace vocabpipe::mpi {

namespace {

void check(int result, const char* call, int rank) {
    if (result == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(result, text.data(), &length);
    throw CommunicationError("rank " + std::to_string(rank) + ": " + call +
                             " failed: " + std::string(text.data(), static_cast<size_t>(length)));
}

#define VOCABPIPE_MPI(call) check(call, #call, rank_)

class MpiTransport final : public MessageTransport {
public:
    explicit MpiTransport(MPI_Comm parent) {
        MPI_Comm_rank(parent, &rank_);
        MPI_Comm_size(parent, &size_);
        VOCABPIPE_MPI(MPI_Comm_dup(parent, &comm_));
        MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    }
    ~MpiTransport() override {
        // Freeing is collective; after a failure the communicator dies with the process.
        if (std::uncaught_exceptions() > 0) return;
        cancel();  // for receives of the abandon line
        MPI_Comm_free(&comm_);
    }
    MpiTransport(const MpiTransport&) = delete;
    MpiTransport& operator=(const MpiTransport&) = delete;

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return size_; }
    /// The peers learn of it when the program aborts the job (World::abort).
    void abort(const std::string&) noexcept override {}
    void cancel() noexcept override {
        for (Open& open : requests_) {
            if (open.handle == MPI_REQUEST_NULL || open.expected < 0) continue;
            MPI_Cancel(&open.handle);
            MPI_Request_free(&open.handle);
        }
    }

protected:
    Request post_send(int peer, Channel channel, std::span<const std::byte> bytes) override {
        const Request request = requests_.take_new();
        VOCABPIPE_MPI(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, peer,
                                static_cast<int>(channel), comm_, &requests_[request].handle));
        return request;
    }
    Request post_receive(int peer, Channel channel, std::span<std::byte> bytes) override {
        const Request request = requests_.take_new();
        requests_[request].expected = static_cast<int>(bytes.size());
        VOCABPIPE_MPI(MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, peer,
                                static_cast<int>(channel), comm_, &requests_[request].handle));
        return request;
    }
    bool test_request(Request request) override {
        int done = 0;
        MPI_Status status;
        Open& open = requests_[request];
        VOCABPIPE_MPI(MPI_Test(&open.handle, &done, &status));
        if (done == 0) return false;
        requests_.give_back(request);
        if (open.expected >= 0) {  // MPI reports messages that are too long, not too short
            int received = 0;
            MPI_Get_count(&status, MPI_BYTE, &received);
            if (received != open.expected) {
                throw CommunicationError("rank " + std::to_string(rank_) +
                                         ": received a message of " + std::to_string(received) +
                                         " bytes, expected " + std::to_string(open.expected));
            }
        }
        return true;
    }

private:
    struct Open {
        MPI_Request handle = MPI_REQUEST_NULL;
        int expected = -1;  ///< bytes of a receive; -1: a send
    };

    MPI_Comm comm_ = MPI_COMM_NULL;
    int rank_ = 0;
    int size_ = 1;
    ReusedSlots<Open> requests_;  ///< MPI may keep a handle's address
};

}  // namespace

struct Session::State {
    bool initialised_here = false;
    bool aborted = false;
    int rank = 0;
    int size = 1;
};

Session::Session() : state_(std::make_unique<State>()) {
    int initialised = 0;
    MPI_Initialized(&initialised);
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (finalised != 0) {
        throw CommunicationError(
            "MPI was finalized in this process and cannot start again; keep one World::mpi() alive "
            "until the last one is done");
    }
    if (initialised == 0) {
        int provided = MPI_THREAD_SINGLE;
        if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
            throw CommunicationError("MPI_Init_thread failed; is this process started by mpirun?");
        }
        state_->initialised_here = true;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &state_->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &state_->size);
}

Session::~Session() {
    if (state_->initialised_here && !state_->aborted) MPI_Finalize();
}

int Session::rank() const {
    return state_->rank;
}
int Session::size() const {
    return state_->size;
}

int Session::node() const {
    int lowest = state_->rank;
    MPI_Comm node = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, state_->rank, MPI_INFO_NULL, &node);
    MPI_Allreduce(&state_->rank, &lowest, 1, MPI_INT, MPI_MIN, node);
    MPI_Comm_free(&node);
    return lowest;
}

std::unique_ptr<Transport> Session::make_transport() {
    return std::make_unique<MpiTransport>(MPI_COMM_WORLD);
}

void Session::abort(int exit_code) noexcept {
    state_->aborted = true;
    MPI_Abort(MPI_COMM_WORLD, exit_code);
}

}  // namespace vocabpipe::mpi
