//! Compiles the kernel program for user space, instrumented like everything else: gcc has no such instrumentation.

fn main() {
    for path in ["kernel", "../bpf"] {
        println!("cargo:rerun-if-changed={path}");
    }
    cc::Build::new()
        .compiler("clang")
        .include("kernel")
        .flag("-fsanitize-coverage=inline-8bit-counters,pc-table,trace-cmp")
        .opt_level(2)
        .file("kernel/steer.c")
        .compile("kernel");
}
