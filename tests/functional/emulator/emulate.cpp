// XLA handlers for a CPU that run the kernels of recurrence.cu in emulation.
#include "recurrence.cu"
#include "xla/ffi/api/c_api.h"

static int order = 0;
extern "C" void set_order(int value) { order = value; }

// Answers XLA's question for the version of the interface; returns true if this was the question.
static bool is_query(XLA_FFI_CallFrame* frame) {
    auto* extension = frame->extension_start;  // its type has another name in newer versions
    if (!extension || extension->type != XLA_FFI_Extension_Metadata) return false;
    XLA_FFI_Metadata* metadata = ((XLA_FFI_Metadata_Extension*)extension)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    metadata->traits = 0;
    return true;
}

#define IN(i) ((const float*)((XLA_FFI_Buffer*)frame->args.args[i])->data)
#define OUT(i) ((float*)((XLA_FFI_Buffer*)frame->rets.rets[i])->data)
#define META ((const int*)IN(0))
#define BYTES(i) ((const unsigned char*)IN(i))
// The extent of the direction axis is the size of `reversed`.
static void run(XLA_FFI_CallFrame* frame, int threads, std::function<void()> kernel) {
    const int directions = ((XLA_FFI_Buffer*)frame->args.args[1])->dims[0];
    for (int i = 0; i < frame->rets.size; i++) {  // memory that a kernel does not write is not 0
        XLA_FFI_Buffer* buffer = (XLA_FFI_Buffer*)frame->rets.rets[i];
        size_t size = 1;
        for (int k = 0; k < buffer->rank; k++) size *= buffer->dims[k];
        for (size_t k = 0; k < size; k++) ((float*)buffer->data)[k] = NAN;
    }
    emulate(CLUSTER * ((META[1] + ROWS - 1) / ROWS), directions, CLUSTER, threads, order, kernel);
}

extern "C" XLA_FFI_Error* handle_forward(XLA_FFI_CallFrame* frame) {
    if (!is_query(frame))
        run(frame, THREADS, [=] {
            run_forward(META, BYTES(1), IN(2), IN(3), BYTES(4), IN(5), IN(6), IN(7), IN(8), IN(9), IN(10), OUT(0),
                        OUT(1), OUT(2));
        });
    return nullptr;
}
extern "C" XLA_FFI_Error* handle_saving(XLA_FFI_CallFrame* frame) {
    if (!is_query(frame))
        run(frame, THREADS, [=] {
            run_saving(META, BYTES(1), IN(2), IN(3), BYTES(4), IN(5), IN(6), IN(7), IN(8), IN(9), IN(10), OUT(0),
                       OUT(1), OUT(2), OUT(3), OUT(4));
        });
    return nullptr;
}
extern "C" XLA_FFI_Error* handle_backward(XLA_FFI_CallFrame* frame) {
    if (!is_query(frame))
        run(frame, BACK_THREADS, [=] {
            run_backward(META, BYTES(1), IN(2), BYTES(3), IN(4), IN(5), IN(6), IN(7), IN(8), IN(9), OUT(0), OUT(1),
                         OUT(2), OUT(3), OUT(4));
        });
    return nullptr;
}
