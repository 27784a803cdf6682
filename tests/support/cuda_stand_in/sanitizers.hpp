// SPDX-License-Identifier: Apache-2.0
#pragma once

// CUDA_STAND_IN_ASAN and CUDA_STAND_IN_TSAN are 1 in a build with that sanitizer, else 0.
#if defined(__has_feature)
#define CUDA_STAND_IN_ASAN __has_feature(address_sanitizer)
#define CUDA_STAND_IN_TSAN __has_feature(thread_sanitizer)
#else
#if defined(__SANITIZE_ADDRESS__)
#define CUDA_STAND_IN_ASAN 1
#else
#define CUDA_STAND_IN_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__)
#define CUDA_STAND_IN_TSAN 1
#else
#define CUDA_STAND_IN_TSAN 0
#endif
#endif
