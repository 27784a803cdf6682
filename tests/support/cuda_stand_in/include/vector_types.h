// SPDX-License-Identifier: Apache-2.0
#pragma once

// The vector types of CUDA with their sizes and alignments, and dim3.

struct alignas(2) char2 {
    signed char x, y;
};
struct alignas(4) char4 {
    signed char x, y, z, w;
};
struct alignas(2) uchar2 {
    unsigned char x, y;
};
struct alignas(4) uchar4 {
    unsigned char x, y, z, w;
};
struct alignas(4) short2 {
    short x, y;
};
struct alignas(8) short4 {
    short x, y, z, w;
};
struct alignas(4) ushort2 {
    unsigned short x, y;
};
struct alignas(8) ushort4 {
    unsigned short x, y, z, w;
};
struct alignas(8) int2 {
    int x, y;
};
struct int3 {
    int x, y, z;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned int x, y;
};
struct uint3 {
    unsigned int x, y, z;
};
struct alignas(16) uint4 {
    unsigned int x, y, z, w;
};
struct alignas(16) longlong2 {
    long long x, y;
};
struct alignas(16) ulonglong2 {
    unsigned long long x, y;
};
struct alignas(8) float2 {
    float x, y;
};
struct float3 {
    float x, y, z;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1)
        : x(vx), y(vy), z(vz) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3{x, y, z}; }
};

inline int2 make_int2(int x, int y) {
    return {x, y};
}
inline int3 make_int3(int x, int y, int z) {
    return {x, y, z};
}
inline int4 make_int4(int x, int y, int z, int w) {
    return {x, y, z, w};
}
inline uint2 make_uint2(unsigned int x, unsigned int y) {
    return {x, y};
}
inline uint3 make_uint3(unsigned int x, unsigned int y, unsigned int z) {
    return {x, y, z};
}
inline uint4 make_uint4(unsigned int x, unsigned int y, unsigned int z, unsigned int w) {
    return {x, y, z, w};
}
inline longlong2 make_longlong2(long long x, long long y) {
    return {x, y};
}
inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) {
    return {x, y};
}
inline float2 make_float2(float x, float y) {
    return {x, y};
}
inline float3 make_float3(float x, float y, float z) {
    return {x, y, z};
}
inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}
inline double2 make_double2(double x, double y) {
    return {x, y};
}
