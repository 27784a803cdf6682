// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <functional>
#include <memory>

namespace vocabpipe {

/// A function with a stack of its own on the thread that calls it: the two hand control to each
/// other. Everything stays on one thread, so libraries that know threads (MPI below
/// MPI_THREAD_MULTIPLE, OpenMP with its team) see nothing new. Used by one thread.
class Coroutine {
public:
    Coroutine();
    ~Coroutine();
    Coroutine(const Coroutine&) = delete;
    Coroutine& operator=(const Coroutine&) = delete;

    /// Runs `work` until it suspends or ends; throws what it throws. Not while another is
    /// suspended. The first call allocates the stack.
    void start(std::function<void()> work);
    /// Continues a suspended work until it suspends or ends; throws what it throws.
    void resume();
    /// Called by the work: returns with the next resume(). Throws something that only the
    /// destructors of the work see if it is cancelled instead.
    void suspend();
    /// Unwinds the stack of a suspended work, if there is one; safe while an exception propagates.
    void cancel() noexcept;

    /// Whether the caller is the work.
    [[nodiscard]] bool is_inside() const { return inside_; }
    [[nodiscard]] bool is_suspended() const { return suspended_; }

private:
    struct Stack;  ///< coroutine.cpp: memory and registers
    struct Cancelled {};

    static void run(unsigned high, unsigned low);
    void enter();

    std::unique_ptr<Stack> stack_;
    std::function<void()> work_;
    std::exception_ptr error_;
    bool inside_ = false;
    bool suspended_ = false;
    bool cancelled_ = false;
};

}  // namespace vocabpipe
