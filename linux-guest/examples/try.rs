//! Scratch.
use linux_guest::agent::{Agent, Command};
use linux_guest::initramfs::Initramfs;
use linux_guest::modules;
use std::path::Path;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args[0].as_str() {
        "build" => {
            let (kernel, release, out) = (&args[1], &args[2], &args[3]);
            let t = Instant::now();
            let folder = modules::find(release, None, Path::new(kernel))?;
            let mods = modules::needed(&folder, release, &["virtio_pci", "virtio_mmio", "virtio_console"])?;
            eprintln!("{:?} {:?}", t.elapsed(), mods.iter().map(|m| (&m.name, m.bytes.len())).collect::<Vec<_>>());
            let mut fs = Initramfs::new();
            for m in mods {
                fs.module(&m.name, &m.bytes)?;
            }
            for p in &args[4..] {
                fs.program(p, Path::new(p))?;
            }
            if fs.has("/bin/busybox") {
                fs.link("/bin/sh", "busybox")?;
            }
            let bytes = fs.finish()?;
            eprintln!("{:?} {} bytes", t.elapsed(), bytes.len());
            std::fs::write(out, bytes)?;
        }
        "talk" => {
            let stream = loop {
                match std::os::unix::net::UnixStream::connect(&args[1]) {
                    Ok(s) => break s,
                    Err(_) => std::thread::sleep(Duration::from_millis(50)),
                }
            };
            talk(Agent::new(stream)?, &args[2..])?;
        }
        _ => {}
    }
    Ok(())
}

fn talk(mut agent: Agent<'_>, argv: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let t = Instant::now();
    println!("{:?} after {:?}", agent.hello(Duration::from_secs(120))?, t.elapsed());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let ended = agent.run(&Command::new(argv), &mut out, &mut err)?;
    println!("{ended:?}\n{}\n--err\n{}", String::from_utf8_lossy(&out), String::from_utf8_lossy(&err));
    let bytes: Vec<u8> = (0..16 << 20).map(|n: u32| (n % 251) as u8).collect();
    let t = Instant::now();
    agent.put("/tmp/big", 0o644, &mut &bytes[..])?;
    println!("put 16 MiB: {:.1} MB/s", 16.78 / t.elapsed().as_secs_f64());
    let t = Instant::now();
    let mut back = Vec::new();
    agent.get("/tmp/big", &mut back)?;
    println!("get 16 MiB: {:.1} MB/s {}", 16.78 / t.elapsed().as_secs_f64(), back == bytes);
    let folder = std::env::temp_dir().join(format!("tree-{}", std::process::id()));
    println!("{:?}", agent.get_tree("/sys/bus/event_source/devices/cpu/", &folder));
    println!("{:?}", agent.get_tree("/modules", &folder.join("m")));
    println!("{:?}", agent.write("/proc/sys/kernel/hostname", b"x"));
    println!("{:?}", agent.write("/proc/sys/kernel/nothing", b"x"));
    agent.power_off()?;
    Ok(())
}
