//! Which segments join the one before them.

use super::*;

#[test]
fn what_follows_joins_up_to_a_push() {
    for is_v6 in [false, true] {
        let mut shapes: Vec<Shape> = (0..5).map(|i| Shape::data(1000 * i, 1000)).collect();
        shapes.iter_mut().for_each(|shape| shape.is_v6 = is_v6);
        shapes[2].flags = TcpFlags::ACK | TcpFlags::PSH;
        let carried = carried(&shapes);
        assert_eq!(carried.len(), 2);
        assert_eq!((carried[0].1, carried[0].2), (0, TcpFlags::ACK | TcpFlags::PSH));
        assert_eq!(carried[0].3.len(), 3000);
        assert_eq!((carried[1].1, carried[1].3.len()), (3000, 2000));
    }
}

#[test]
fn what_differs_or_is_broken_stands_alone() {
    type Change = fn(&mut Shape);
    let changes: [Change; 12] = [
        |shape| shape.echo = 6,
        |shape| shape.seq += 1,
        |shape| shape.flags = TcpFlags::ACK | TcpFlags::FIN,
        |shape| shape.flags = TcpFlags::ACK | TcpFlags::CWR,
        |shape| (shape.flags, shape.urgent) = (TcpFlags::ACK | TcpFlags::URG, 5),
        |shape| shape.ack += 1,
        |shape| shape.window += 1,
        |shape| shape.stamp = Some(10),
        |shape| shape.stamp = None,
        |shape| shape.traffic_class = 10 << 2,
        |shape| shape.traffic_class = 3,
        |shape| shape.hop_limit -= 1,
    ];
    let of_one: [(bool, Change); 2] =
        [(false, |shape| shape.dont_fragment = false), (true, |shape| shape.flow_label = 1)];
    let of_both = changes.into_iter().flat_map(|change| [(false, change), (true, change)]);
    for (number, (is_v6, change)) in of_both.chain(of_one).enumerate() {
        let mut shapes: Vec<Shape> = (0..3).map(|i| Shape::data(1000 * i, 1000)).collect();
        shapes.iter_mut().for_each(|shape| shape.is_v6 = is_v6);
        assert_eq!(lengths(&shapes), [3000]);
        change(&mut shapes[1]);
        assert_eq!(lengths(&shapes), [1000, 1000, 1000], "change {number}");
    }
    let mut shapes: Vec<Shape> = (0..3).map(|i| Shape::data(1000 * i, 1000)).collect();
    shapes[1].is_broken = true;
    assert_eq!(lengths(&shapes), [1000, 1000]);
}

#[test]
fn what_comes_behind_ip_options_is_not_overtaken() {
    // The third would join the first, had the second not been in between.
    let mut shapes = vec![Shape::data(0, 1000), Shape::data(1000, 500), Shape::data(1000, 1000)];
    shapes[1].has_ip_options = true;
    assert_eq!(lengths(&shapes), [1000, 500, 1000]);
}

#[test]
fn a_shorter_segment_is_the_last_and_small_ones_begin_no_train() {
    let runs = |sizes: &[usize]| {
        let mut seq = 0;
        let shapes = sizes.iter().map(|&len| {
            let shape = Shape::data(seq, len);
            seq += len as u32;
            shape
        });
        lengths(&shapes.collect::<Vec<_>>())
    };
    assert_eq!(runs(&[1000, 1000, 600, 1000, 1000]), [2600, 2000]);
    assert_eq!(runs(&[600, 1000, 1000]), [600, 2000], "a longer one does not join");
    assert_eq!(runs(&[9; 5]), [9; 5], "the receive queue copies them together");
    assert_eq!(runs(&[1000, 9, 9]), [1009, 9]);
}

#[test]
fn a_bare_ack_ends_the_train() {
    let shapes = [Shape::data(0, 1000), Shape::data(1000, 0), Shape::data(1000, 1000)];
    assert_eq!(lengths(&shapes), [1000, 0, 1000]);
}

#[test]
fn padding_is_cut_off_and_a_train_has_an_end() {
    let mut shapes: Vec<Shape> = (0..60).map(|i| Shape::data(1400 * i, 1400)).collect();
    shapes[1].padding = 6;
    assert_eq!(lengths(&shapes), [46 * 1400, 14 * 1400]);
}
